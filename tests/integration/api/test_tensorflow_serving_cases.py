"""TensorFlow Serving's own cases of predict, against a real server."""

import json
import re

import numpy as np
import pytest

from testing.server import ROOT, serving
from testing.tried.saved_models import half_plus_two_graph
from testing.tried.saving import Saving
from tests.support.marks import USES_TENSORFLOW
from tests.support.tensorflow_serving_cases import CASES

pytestmark = USES_TENSORFLOW
PAGE = ROOT / "docs" / "api.md"
# Models that answer with their inputs: dtype and shape of each; (None, ...) has rows.
ECHOES = {
    "ints": {"x": ("int32", None, 2)},
    "int_scalars": {"x": ("int32", None)},
    "int_lists": {"x": ("int32", None, None)},
    "floats": {"x": ("float32", None)},
    "doubles": {"x": ("float64", None)},
    "triples": {"x": ("float32", None, 3)},
    "float_pairs": {"x": ("float32", None, 2)},
    "tables": {"x": ("int32", None, 3, 2)},
    "text": {"x": ("string", None)},
    "text_lists": {"x": ("string", None, 1)},
    "text_pairs": {"x": ("string", None, 2)},
    "text_tables": {"x": ("string", None, 2, 1)},
    "raw": {"x_bytes": ("string", None, 2)},
    "pairs": {"i": ("int32", None, None, 2), "s": ("string", None, 2)},
    "mixed": {
        "i": ("int32", None, 3, 2),
        "s": ("string", None, 2),
        "f": ("float32", None, 2),
        "d": ("float64", None, 1),
    },
    "unlike": {"i": ("int32", None, 3, 2), "s": ("string", None), "b": ("string",)},
    "outputs": {
        "dbl": ("float64", None),
        "flt": ("float32", None, 1),
        "num": ("int32", None, 3, 2),
        "raw_bytes": ("string", None, 2),
    },
}


def _save_models(keras, tf, folder):
    def saving(name, version=1):
        return Saving(keras, tf, folder / name / str(version))

    def echo(**inputs):
        return {name: tf.identity(tensor) for name, tensor in inputs.items()}

    for model, inputs in ECHOES.items():
        module = tf.Module()
        module.echo = tf.function(echo)
        call = module.echo.get_concrete_function(
            **{
                name: tf.TensorSpec(shape, dtype, name)
                for name, (dtype, *shape) in inputs.items()
            }
        )
        signatures = {"serving_default": call}
        if model == "ints":
            signatures["predict_images"] = call
        tf.saved_model.save(module, str(folder / model / "1"), signatures)
    floats = tf.TensorSpec([None], tf.float32, "x")
    saving("complex").functions(
        serving_default=(lambda x: {"y": tf.complex(x, x)}, floats)
    )
    saving("total").functions(
        serving_default=(lambda x: {"y": tf.reduce_sum(x)}, floats)
    )
    saving("sizes").functions(
        serving_default=(
            lambda n: {"i": tf.ones([n[0], 3]), "s": tf.ones([n[1], 3])},
            tf.TensorSpec(None, tf.int32, "n"),
        )
    )
    half_plus_two_graph(saving("half_plus_two", 123))
    (folder / "half_plus_two" / "basket.toml").write_text("[labels]\ncanary = 123\n")


@pytest.fixture(scope="module")
def server(keras, tf, tmp_path_factory):
    """Serve a model for each kind of case."""
    folder = tmp_path_factory.mktemp("models")
    _save_models(keras, tf, folder)
    with serving("--threads=4", ready=False, model_dir=str(folder)) as running:
        running.wait_until_loaded()
        yield running


def _holds(wanted, status, body):
    if isinstance(wanted, int):
        return status == wanted
    # By their texts: NaN is not equal to itself.
    return status == 200 and _text(json.loads(body)) == _text(wanted)


def _text(value):
    """Return JSON with numbers as float32 has them."""
    if isinstance(value, dict):
        return {name: _text(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_text(each) for each in value]
    return value if isinstance(value, str) else str(np.float32(value))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_of_tensorflow_serving(server, case):
    """Each case has TensorFlow Serving's status and values, or the page's."""
    is_raw = isinstance(case.body, bytes)
    body = case.body if is_raw else json.dumps(case.body).encode()
    reply = server.request("POST", f"/v1/models/{case.model}:predict", body)
    assert _holds(case.wanted(), reply.status, reply.body), reply.body[:300]
    print("ZZ", case.name, reply.status, reply.body[:170])


def test_the_page_counts_and_explains_the_cases():
    """The page says how many cases hold, and lists each other one."""
    text = PAGE.read_text()
    differing = [case for case in CASES if case.here is not None]
    (counts,) = re.findall(r"(\d+) of the (\d+) cases", text)
    assert [int(each) for each in counts] == [len(CASES) - len(differing), len(CASES)]
    (_, _, table) = text.partition("| case | TensorFlow Serving | here, and why |")
    shown = re.findall(r"^\| (?!--)(.*?) \|", table.partition("\n\n")[0], re.M)
    assert shown == [case.name for case in differing]
