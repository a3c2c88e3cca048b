"""Rows that a model refuses as invalid, such as ids out of its vocabulary."""

import json

import pytest

from testing.clients import at_once
from testing.server import serving
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW

REFUSED = "the model refuses this input: "
NO_ID = f"{REFUSED}1000 is not in [0, 500)"


@pytest.fixture(name="folder", scope="module")
def _folder(keras, tmp_path_factory):
    """A model over ids, which is the default, and one over words without others."""
    folder, layers = tmp_path_factory.mktemp("models"), keras.layers
    ids = keras.Input((4,), dtype="int32", name="ids")
    embedded = layers.Embedding(500, 8, embeddings_initializer="ones")(ids)
    words = keras.Input((1,), dtype="string", name="word")
    found = layers.StringLookup(vocabulary=["tea", "milk"], num_oov_indices=0)(words)
    for name, model in (
        ("ids", keras.Model(ids, layers.GlobalAveragePooling1D()(embedded))),
        ("words", keras.Model(words, found)),
    ):
        (folder / name / "1").mkdir(parents=True)
        model.save(folder / name / "1" / "model.keras")
    return folder


def _row(n):
    return [n, 1, 2, 3]


@pytest.mark.parametrize("mode", [{}, {"model_process": "shared"}, {"batching": "off"}])
def test_row_that_the_model_refuses_is_a_400_and_its_neighbors_are_answered(
    folder, mode
):
    """In each protocol and with a model process, the error has the model's reason."""
    rows = [_row(1000 if n % 7 == 0 else n) for n in range(20)]
    settings = {"model_dir": str(folder), "default_model": "ids", **mode}
    with serving("--threads=20", **settings) as server:
        replies, _ = at_once(server.port, rows)
        for row, reply in zip(rows, replies, strict=True):
            if row[0] == 1000:
                assert (reply.status, reply.json()) == (400, {"error": NO_ID})
            else:
                assert reply.json() == {"predictions": [[1.0] * 8]}
        tensor = {"name": "ids", "shape": [2, 4], "datatype": "INT32"}
        tensor["data"] = [_row(1), _row(1000)]
        for path, body in (
            ("/predict", {"instances": [_row(1), _row(1000)]}),
            ("/v1/models/ids:predict", {"instances": [_row(1), _row(1000)]}),
            ("/v2/models/ids/infer", {"inputs": [tensor]}),
        ):
            reply = server.request("POST", path, json.dumps(body).encode())
            assert (reply.status, reply.json()) == (400, {"error": NO_ID}), path
        body = b'{"instances": ["cocoa"]}'
        reply = server.request("POST", "/v1/models/words:predict", body)
        assert reply.status == 400
        assert reply.json()["error"].startswith(
            f"{REFUSED}assertion failed: [When `num_oov_indices=0` all inputs should be"
        )
        assert 'found OOV values [\\"cocoa\\"]' in reply.json()["error"]
        log = server.log.read_text()
        assert "[ERROR]" not in log
        assert "Traceback" not in log
