"""PyTriton's own client, HTTP and gRPC, against a real Basket."""

import json
import subprocess

import numpy as np
import pytest

from testing.server import ROOT
from testing.tried.saving import Saving
from tests.support.grpc_calls import serving_grpc
from tests.support.marks import USES_TENSORFLOW

VENV = ROOT / ".venv-pytriton"
SCRIPT = ROOT / "tests" / "support" / "pytriton_client.py"
PIXELS = json.loads((ROOT / "samples" / "7.json").read_text())["instances"]

pytestmark = [
    *USES_TENSORFLOW,
    pytest.mark.skipif(
        not (VENV / "done").exists(),
        reason="no .venv-pytriton: `make test` installs it where it can",
    ),
]
# For each model the dtype and the values of its inputs.
ASKED = {
    "digits": {"image": ("float32", PIXELS * 3)},
    "scalars": {"price": ("float32", [1.5, 2.5]), "name": ("str", ["Ann", "Zoë"])},
    # The client's user may read dims, too.
    "ones": {"price": ("float32", [[1.5], [2.5]]), "name": ("str", [["Ann"], ["Zoë"]])},
    "words": {"words": ("str", [["a", "b"], ["", "ż"]])},
    "one_row": {"x": ("float32", [[1, 2]])},
    "single": {"degrees": ("float32", 30)},
}


def _save(tf, folder):
    """Save models of scalar rows, of strings, of batches of one, and of no rows."""

    def save(name, function, *specs):
        saving = Saving(None, tf, folder / name / "1")
        saving.functions(serving_default=(function, *specs))

    spec = tf.TensorSpec
    scalars = spec([None], tf.float32, "price"), spec([None], tf.string, "name")
    for name in ("scalars", "ones"):
        save(name, lambda price, name: {"twice": 2 * price, "same": name}, *scalars)
    save(
        "words",
        lambda words: {"joined": tf.strings.reduce_join(words, axis=1)},
        spec([None, 2], tf.string, "words"),
    )
    save("one_row", lambda x: {"sum": x[:, 0] + x[:, 1]}, spec([1, 2], tf.float32, "x"))
    save("single", lambda degrees: {"kelvin": degrees + 273}, spec([], name="degrees"))


@pytest.fixture(scope="module")
def said(tf, tmp_path_factory):
    """Run PyTriton's client against a server; return its results by protocol."""
    models = tmp_path_factory.mktemp("models")
    _save(tf, models)
    (models / "digits").symlink_to(ROOT / "models" / "digits")
    with serving_grpc("--threads=4", model_dir=str(models)) as (server, grpc_address):
        urls = [f"http://127.0.0.1:{server.port}", f"grpc://{grpc_address}"]
        asked = subprocess.run(
            [
                VENV / "bin" / "python",
                SCRIPT,
                json.dumps({"urls": urls, "models": ASKED}),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert asked.returncode == 0, asked.stderr
    return dict(zip(("http", "grpc"), json.loads(asked.stdout), strict=True))


@pytest.fixture(params=["http", "grpc"])
def answers(said, request):
    return said[request.param]


def test_pytriton_client_recognizes_a_digit(answers):
    """A sample and a batch of pictures have the scores of the same digit."""
    digits = answers["digits"]
    assert digits["dims"] == [[8, 8, 1]]
    assert np.argmax(digits["batch"]["digit"], axis=1).tolist() == [7, 7, 7]
    assert np.argmax(digits["sample"]["digit"]) == 7


@pytest.mark.parametrize("model", ["scalars", "ones"])
def test_pytriton_client_sends_scalar_rows(answers, model):
    """Rows of one value are taken with the size of dims, and without it."""
    assert answers[model] == {
        "dims": [[1], [1]],
        "batch": {"twice": [3, 5], "same": ["Ann", "Zoë"]},
        "sample": {"twice": 3, "same": "Ann"},
    }


def test_pytriton_client_sends_strings(answers):
    """Rows of strings come back joined."""
    assert answers["words"] == {
        "dims": [[2]],
        "batch": {"joined": ["ab", "ż"]},
        "sample": {"joined": "ab"},
    }


def test_pytriton_client_knows_models_that_are_not_batched(answers):
    """A model of one row takes a batch of one; without rows, there is no batch."""
    assert answers["one_row"]["batch"] == {"sum": [3]}
    assert answers["one_row"]["sample"] == {"sum": 3}
    assert answers["single"] == {
        "dims": [[1]],
        "batch": "not batched",
        "sample": {"kelvin": 303},
    }
