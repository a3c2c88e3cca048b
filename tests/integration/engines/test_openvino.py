"""The OpenVINO engine: Keras files without TensorFlow in the serving process."""

import logging
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from app.errors import ModelFailed
from app.settings import Settings
from testing.keras_models import save_several, small_convolutions, spread_scores
from testing.pictures import colors
from testing.server import ROOT, serving
from tests.support.marks import USES_TENSORFLOW

pytestmark = [
    pytest.mark.skipif(
        find_spec("openvino") is None,
        reason="openvino is not installed: requirements/openvino.txt",
    ),
    *USES_TENSORFLOW,
    pytest.mark.timeout(300),
]
SIDE = 32


@pytest.fixture(scope="module")
def openers():
    """Return open_engine of OpenVINO and of TensorFlow."""
    from app.engines.openvino import keras_file as openvino  # noqa: PLC0415
    from app.engines.tensorflow import keras_file as tensorflow  # noqa: PLC0415

    return openvino.open_engine, tensorflow.open_engine


def _rows(count):
    random = np.random.default_rng(count)
    return {
        "picture": np.stack([colors(SIDE, SIDE, seed) for seed in range(count)]),
        "weight": random.standard_normal((count, 2), np.float32),
        "number": random.integers(-9, 9, (count, 2), np.int32),
    }


def test_openvino_outputs_equal_tensorflows(keras, openers, tmp_path, caplog):
    """Convolutions beside other inputs and outputs differ by less than 1e-3."""
    classifier = small_convolutions(keras, SIDE)
    seen = _rows(8)["picture"] / np.float32(127.5) - 1
    spread_scores(keras, classifier, seen)
    save_several(keras, classifier, tmp_path / "model.keras")
    with caplog.at_level(logging.INFO, "app"):
        engine, reference = (
            open_engine(tmp_path / "model.keras", Settings()) for open_engine in openers
        )
    assert "differs from TensorFlow's by up to" in caplog.text
    assert engine.signatures == reference.signatures
    assert engine.weight_bytes == reference.weight_bytes
    for rows in (8, 1, 3):
        batch = _rows(rows)
        outputs, expected = engine.run(batch), reference.run(batch)
        assert list(outputs) == [
            spec.name for spec in engine.signatures["serving_default"].outputs
        ]
        for name, array in expected.items():
            assert outputs[name].dtype == array.dtype
            assert outputs[name].shape == array.shape
            largest = np.abs(array * 1.0).max()
            np.testing.assert_allclose(outputs[name] * 1.0, array, atol=1e-3 * largest)
        if rows > 1:
            # The comparison requires outputs that differ between rows.
            assert np.ptp(expected["scores"], axis=0).max() > 0.1


def test_openvino_accepts_ragged_shapes_and_refuses_64_bit_values(
    keras, openers, tmp_path
):
    """Free dimensions take any size; integers above 32 bits are an error."""
    row = keras.Input((None, 3), name="row")
    number = keras.Input((1,), name="number", dtype="int64")
    outputs = {"sum": keras.ops.sum(row, axis=1), "next": number + 1}
    keras.Model({"row": row, "number": number}, outputs).save(tmp_path / "model.keras")
    engine = openers[0](tmp_path / "model.keras", Settings())
    _, wide = engine.signatures["serving_default"].inputs
    assert wide.shape == (None, 3)
    largest = 2**31 - 2
    batches = [
        {"row": np.ones((2, size, 3), np.float32), "number": np.array([[5], [largest]])}
        for size in (1, 5)
    ]
    # As a batch that was decoded from bytes in place.
    batches[1]["row"].flags.writeable = False
    first, second = (engine.run(batch) for batch in batches)
    assert first["sum"].tolist() == [[1] * 3] * 2
    assert second["sum"].tolist() == [[5] * 3] * 2
    assert second["next"].tolist() == [[6], [largest + 1]]
    for value in (2**31, -(2**31) - 1):
        numbers = {"number": np.array([[5], [value]])}
        with pytest.raises(ModelFailed, match="number holds a number outside -2147"):
            engine.run(batches[0] | numbers)
    engine.close()
    engine.close()


def test_openvino_refuses_unsigned_numbers_beyond_int32(keras, openers, tmp_path):
    """OpenVINO computes uint32 as int32: half of 3,000,000,000 would be another."""
    number = keras.Input((1,), name="number", dtype="uint32")
    keras.Model(number, number // 2).save(tmp_path / "model.keras")
    engine = openers[0](tmp_path / "model.keras", Settings())
    (name,) = (spec.name for spec in engine.signatures["serving_default"].outputs)
    halves = engine.run({"number": np.array([[1001]], np.uint32)})[name]
    assert halves.tolist() == [[500]]
    with pytest.raises(ModelFailed, match="number holds a number outside -2147"):
        engine.run({"number": np.array([[3_000_000_000]], np.uint32)})
    engine.close()


def test_server_on_openvino_loads_no_tensorflow(keras, tmp_path):
    """The worker maps no TensorFlow; a model that OpenVINO refuses harms no other."""
    (tmp_path / "digits").symlink_to(ROOT / "models" / "digits")
    (tmp_path / "top" / "1").mkdir(parents=True)
    scores = keras.Input((4,), name="scores")
    top = keras.Model(scores, keras.ops.argmax(scores, axis=-1))
    top.save(tmp_path / "top" / "1" / "model.keras")
    settings = {"model_dir": str(tmp_path), "default_model": "digits"}
    with serving("--threads=4", ready=False, engine="openvino", **settings) as server:
        server.wait_until_loaded()
        reply = server.predict(np.zeros((3, 8, 8, 1)).tolist())
        assert reply.status == 200, server.log.read_text()
        assert len(reply.json()["predictions"]) == 3
        reason = "model.keras can't run in OpenVINO: it has no Bitcast"
        assert reason in server.log.read_text()
        (worker,) = server.workers()
        libraries = Path(f"/proc/{worker}/maps").read_text()
    assert "site-packages/openvino/" in libraries
    assert "site-packages/tensorflow/" not in libraries
