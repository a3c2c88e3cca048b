"""Keras models with classes that service.py registers, or only defines."""

import shutil
from contextlib import closing

import numpy as np
import pytest

from app.engines import open_engine
from app.engines.keras.keras_private import registered, unregister
from app.settings import Settings
from testing.memory import resident_mib
from testing.server import wait_until
from tests.support.marks import USES_TENSORFLOW
from tests.support.traffic import Traffic
from tests.support.user_code import add_service, predict, serving_code

pytestmark = USES_TENSORFLOW

LAYERS = """
import keras

# 8 MiB, so that a version that is never let go shows in the memory.
TABLE = bytes(range(256)) * (8 << 12)


@keras.saving.register_keras_serializable("mine")
class Times(keras.layers.Layer):
    FACTOR = 3

    def call(self, x):
        return self.FACTOR * x
"""
# The class may stand in a helper module.
CODE = "import layers\n"
UNREGISTERED = """
import keras


class Tripled(keras.layers.Layer):
    def call(self, x):
        return 3 * x


def squared(x):
    return x * x


def softmax(scores):
    raise AssertionError


# Its __module__ is None.
exec("def cubed(x): return x ** 3", {}, globals())
"""
# By engine: arguments and settings. The other test has TensorFlow.
SET_UPS = {
    "jax": ("--workers=2", {"model_process": "shared"}),
    "openvino": ("--threads=4", {}),
}
SWAPS = 12
KEY = "swap"


def squared(x):
    return x * x


def _layer(keras):
    """Return the layer, of a class that this process does not keep."""
    layer = type("Times", (keras.layers.Layer,), {"call": lambda _, x: 3 * x})
    return keras.saving.register_keras_serializable("mine")(layer)()


def _model(keras):
    """Return a model with a class that is registered, and one that is not."""
    row = keras.Input((4,))
    own = _unregistered(keras)
    return keras.Model(row, _layer(keras)(own(row)))


def _add(models, model, version=1, factor=3):
    return add_service(
        *(models, "m", CODE + UNREGISTERED, version),
        layers=LAYERS.replace("FACTOR = 3", f"FACTOR = {factor}"),
        model=model,
    )


@pytest.mark.parametrize("engine", SET_UPS)
def test_model_with_a_registered_class_answers_as_keras_does(keras, tmp_path, engine):
    """The class is known in each process that reads the model."""
    model = _model(keras)
    _add(tmp_path, model)
    rows = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = model.predict(rows, verbose=0)
    argument, settings = SET_UPS[engine]
    with serving_code(tmp_path, argument, engine=engine, **settings) as server:
        status, found = predict(server, "m", rows.tolist())
    assert status == 200, found
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _unregistered(keras):
    """Return a model with what UNREGISTERED defines."""
    own = {"__module__": "__main__", "call": lambda _, x: 3 * x}
    tripled = type("Tripled", (keras.layers.Layer,), own)()
    row = keras.Input((4,), name="row")
    scores = keras.layers.Dense(3, activation="softmax")(tripled(row))
    return keras.Model(row, keras.layers.Dense(2, activation=squared)(scores))


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_classes_and_functions_of_service_py_need_no_registration(
    keras, tf, tmp_path, name
):
    """They are known by their names, which replace none of Keras's activations."""
    model = _unregistered(keras)
    model.save(tmp_path / name)
    (tmp_path / "service.py").write_text(UNREGISTERED)
    rows = np.random.default_rng(0).random((3, 4), np.float32)
    with closing(open_engine(tmp_path, Settings(user_code=True))) as engine:
        (found,) = engine.run({"row": rows}).values()
    np.testing.assert_allclose(found, model(rows), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("package", ["Custom", "mine"])
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_classes_and_functions_are_known_without_their_package(
    keras, tf, tmp_path, name, package
):
    """They were registered where the file was saved, and are not in service.py."""
    before = registered()

    def halved(x):
        return x / 2

    own = {"__module__": "__main__", "call": lambda _, x: 3 * x}
    register = keras.saving.register_keras_serializable(package)
    tripled = register(type("Tripled", (keras.layers.Layer,), own))()
    row = keras.Input((4,), name="row")
    scores = keras.layers.Dense(3, activation=register(halved))(tripled(row))
    model = keras.Model(row, scores)
    model.save(tmp_path / name)
    unregister([each for each in registered() if each not in before])
    code = f"{UNREGISTERED}\n\ndef halved(x):\n    return x / 2\n"
    (tmp_path / "service.py").write_text(code)
    rows = np.random.default_rng(0).random((3, 4), np.float32)
    with closing(open_engine(tmp_path, Settings(user_code=True))) as engine:
        (found,) = engine.run({"row": rows}).values()
    np.testing.assert_allclose(found, model(rows), rtol=1e-5, atol=1e-6)


@pytest.mark.timeout(300)
def test_registered_classes_are_let_go_with_their_version(keras, tmp_path):
    """Each version computes with its own class of one name, and is not kept whole.

    Memory grows by less than half of the versions' tables.
    """
    row = keras.Input((1,))
    model = keras.Model(row, _layer(keras)(row))
    settings = {"admin_keys": KEY}
    old = _add(tmp_path, model, 1, 1)
    held_mib = {}
    with serving_code(tmp_path, "--threads=24", **settings) as server:
        server.headers["Authorization"] = f"Bearer {KEY}"
        (pid,) = server.workers()
        with Traffic(server.port, [[1]], server.headers) as traffic:
            for number in range(2, SWAPS + 2):
                new = _add(tmp_path, model, number, number)
                path = "/v2/repository/models/m/load"
                loaded = server.request("POST", path)
                assert loaded.status == 200, loaded.body
                shutil.rmtree(old)
                old = new
                held_mib[number - 1] = resident_mib(pid)
            last = float(number)
            wait_until(lambda: (last,) in traffic.numbers(), 30)
    assert traffic.failed == []
    assert all(numbers == (float(v),) for v, numbers in traffic.answers)
    grown_mib = held_mib[SWAPS] - held_mib[4]
    assert grown_mib < 0.5 * 8 * (SWAPS - 4), held_mib
