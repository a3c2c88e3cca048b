"""Models whose rows depend on each other: served one row at a time, and who says so."""

import json

import pytest

from testing.server import serving
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW
TEXTS = ["great", "not at all bad", "tea", "fine hot tea", "a b c d e f g h"]
WORDS = [[len(word) for word in text.split()] for text in TEXTS]
WHY = (
    "not batched: its rows depend on each other: a row's words has shape (1,) alone "
    "and (12,) among others. To have it batched, give TextVectorization an "
    "output_sequence_length, or Embedding mask_zero=True, and save it again; to have "
    "it as it is without this note, write max_batch_size = 1 into its basket.toml"
)


@pytest.fixture(scope="module")
def models(tf, tmp_path_factory):
    """A folder with two models of the lengths of words; one has max_batch_size 1."""
    module, folder = tf.Module(), tmp_path_factory.mktemp("models")

    def lengths(text):
        words = tf.strings.split(text).to_tensor()
        return {"words": tf.strings.length(words)}

    module.lengths = tf.function(
        lengths, input_signature=[tf.TensorSpec([None], tf.string, "text")]
    )
    for name, limits in (("loud", "allowed_batch_sizes = [8]"), ("silent", "")):
        version = folder / name / "1"
        tf.saved_model.save(module, str(version), signatures=module.lengths)
        toml = limits or "max_batch_size = 1"
        (folder / name / "basket.toml").write_text(toml)
    return str(folder)


@pytest.fixture(
    scope="module",
    params=[{"model_process": "shared"}, {"batching": "off"}],
    ids=["shared model process", "batching off"],
)
def server(request, models):
    """Serve both."""
    with serving("--threads=4", model_dir=models, **request.param) as running:
        yield running


def test_readiness_the_page_and_the_log_say_why(server):
    """The model is ready, its problem says what to do; of the other nothing is said."""
    readiness = server.request("GET", "/readyz").json()
    assert readiness["status"] == "ready"
    assert readiness["models"]["loud"]["batching"] == WHY
    assert "batching" not in readiness["models"]["silent"]
    problems = {"loud": [f"version 1: serving_default: {WHY}"]}
    assert readiness["problems"] == problems
    (shown, other) = server.request("GET", "/page/state").json()["models"]
    assert shown["versions"][0]["batching"] == WHY
    assert shown["problems"] == problems["loud"]
    assert other["versions"][0]["batching"] == ""
    log = server.log.read_text()
    assert f"model loud version 1: signature serving_default: {WHY}" in log
    assert "model silent version 1: signature" not in log


def test_metadata_takes_any_number_of_rows(server):
    """The first dimension is free, and V2's properties have the reason."""
    metadata = server.request("GET", "/v2/models/loud").json()
    assert metadata["properties"] == {"batching": WHY}
    assert metadata["inputs"][0]["shape"] == [-1]
    config = server.request("GET", "/v2/models/loud/config").json()
    assert config["max_batch_size"] == 1
    v1 = server.request("GET", "/v1/models/loud/metadata").json()["metadata"]
    (signature,) = v1["signature_def"]["signature_def"].values()
    (size,) = signature["inputs"]["text"]["tensor_shape"]["dim"]
    assert size["size"] == "-1"


def _ask(server, path, body):
    return server.request("POST", path, json.dumps(body).encode())


def test_rows_of_one_request_have_the_answers_that_they_have_alone(server):
    """Their outputs are of unlike lengths."""
    for path in ("/v1/models/loud:predict", "/v1/models/loud/versions/1:predict"):
        reply = _ask(server, path, {"instances": TEXTS})
        assert reply.json()["predictions"] == WORDS
        assert reply.headers["X-Batch-Size"] == "1"
    reply = _ask(server, path, {"inputs": {"text": TEXTS}})
    assert reply.json()["outputs"] == WORDS


@pytest.mark.parametrize("name", ["loud", "silent"])
def test_one_tensor_can_not_hold_rows_of_unlike_outputs(server, name):
    """V2 has one shape for all rows, and the error says so."""

    def ask(texts):
        tensor = {"name": "text", "shape": [len(texts)], "datatype": "BYTES"}
        body = {"inputs": [{**tensor, "data": texts}]}
        return _ask(server, f"/v2/models/{name}/infer", body)

    assert ask(["one two", "three four"]).json()["outputs"][0]["shape"] == [2, 2]
    refused = ask(TEXTS)
    assert refused.status == 400
    assert "'words' of unlike shapes, such as (1,) and (3,)" in refused.json()["error"]
