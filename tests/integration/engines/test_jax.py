"""The JAX engine, in processes of its own: Keras has one backend per process."""

import json
import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from app.settings import Settings
from testing.keras_models import (
    save_several,
    small_convolutions,
    spread_scores,
)
from testing.pictures import colors
from testing.server import ROOT, serving
from tests.support.marks import USES_TENSORFLOW

pytestmark = [
    pytest.mark.skipif(
        find_spec("jax") is None, reason="jax is not installed: requirements/jax.txt"
    ),
    *USES_TENSORFLOW,
    pytest.mark.timeout(300),
]
SIDE = 16


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """TensorFlow's engine for a model of several inputs, and its file's folder."""
    # Not at the top: tests that are not run must not import TensorFlow.
    from app.engines.tensorflow import (  # noqa: PLC0415
        keras_file as keras_tensorflow,
    )

    folder = tmp_path_factory.mktemp("jax")
    random = np.random.default_rng(0)
    batch = {
        "picture": np.stack([colors(SIDE, SIDE, seed) for seed in range(8)]),
        "weight": random.standard_normal((8, 2), np.float32),
        "number": random.integers(-9, 9, (8, 2), np.int32),
    }
    np.savez(folder / "batch.npz", **batch)
    classifier = small_convolutions(keras_tensorflow.keras, SIDE)
    seen = batch["picture"] / np.float32(127.5) - 1
    spread_scores(keras_tensorflow.keras, classifier, seen)
    file = folder / "several.keras"
    save_several(keras_tensorflow.keras, classifier, file)
    return keras_tensorflow.open_engine(file, Settings()), folder


@pytest.fixture(scope="module")
def found(reference):
    """The results of a process that runs the JAX engine."""
    _, folder = reference
    command = [sys.executable, "-m", "tests.support.jax_run", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


def test_jax_outputs_equal_tensorflows(reference, found):
    """Several inputs and outputs differ by less than 1e-3, in any batch size."""
    engine, folder = reference
    signature = engine.signatures["serving_default"]
    specs = (*signature.inputs, *signature.outputs)
    assert found["several"]["specs"] == [
        [spec.name, str(spec.dtype), list(spec.shape)] for spec in specs
    ]
    with np.load(folder / "batch.npz") as batch, np.load(folder / "answers.npz") as got:
        for rows in (1, 2, 8):
            part = {name: array[:rows] for name, array in batch.items()}
            expected = engine.run(part)
            for name, array in expected.items():
                given = got[f"{rows} {name}"]
                assert given.dtype == array.dtype
                assert given.shape == array.shape
                largest = np.abs(array.astype(np.float64)).max()
                np.testing.assert_allclose(given * 1.0, array, atol=1e-3 * largest)
    # The comparison requires outputs that differ between rows.
    assert np.ptp(expected["scores"], axis=0).max() > 0.1


def test_jax_compiles_all_batch_sizes_at_load(reference, found):
    """Batches after loading compile nothing; the log has each compilation."""
    assert found["several"]["padded_sizes"] == [1, 3]
    assert found["several"]["compiled_by_requests"] == 0
    assert found["compiled"] > 0
    log = (reference[1] / "log").read_text()
    assert "differs from TensorFlow's by up to" in log
    assert "compiled for 1 rows in " in log
    assert "(2 of 2)" in log


def test_jax_accepts_ragged_shapes_in_free_dimensions(found):
    """A dimension that the model leaves free takes any size."""
    assert found["free_sizes"] == [[[1.0] * 3] * 2, [[5.0] * 3] * 2]


def test_jax_keeps_64_bit_integers(found):
    """64-bit integers are not truncated."""
    assert found["wide_numbers"] == [(1 << 40) + 1, 8]


def test_jax_out_of_memory(found):
    """XLA's RESOURCE_EXHAUSTED is the engine's out of memory error."""
    assert found["out_of_memory"] == (
        "a batch of 4096 rows does not fit into the device's memory"
    )


def test_batch_beyond_the_device_is_refused_without_running(found):
    """A batch that needs more memory than JAX has is refused before it runs."""
    too_large = "a batch of 4 rows does not fit into the device's memory"
    assert found["beyond_the_device"] == ["", "", too_large]


def test_new_shape_that_finds_no_memory_to_compile_is_out_of_memory(found):
    """It is run in smaller batches, as one that finds no memory to run."""
    assert found["out_of_memory_at_compilation"] == (
        "a batch of 1 rows does not fit into the device's memory"
    )


def test_memory_that_jax_can_not_tell_refuses_no_batch(found):
    """Without figures, or with -1 in their place, only JAX's error tells."""
    assert found["unknown_memory"] == [math.inf, math.inf, math.inf, 0, 0]


def test_layer_that_jax_lacks_is_a_load_error(found):
    """A model with a layer that only TensorFlow computes is refused."""
    assert found["look_up"].startswith("JAX can't compile it for 1 rows: ")


def test_jax_engine_imports_no_tensorflow(found):
    """Opening and running models imports no TensorFlow."""
    assert not found["has_tensorflow"]


def test_server_on_jax_loads_no_tensorflow():
    """Gunicorn serves the demo model on JAX, and its worker maps no TensorFlow."""
    with serving("--threads=4", engine="jax", max_batch_size="4") as server:
        reply = server.predict(np.zeros((3, 8, 8, 1)).tolist())
        assert reply.status == 200, server.log.read_text()
        assert len(reply.json()["predictions"]) == 3
        (worker,) = server.workers()
        libraries = Path(f"/proc/{worker}/maps").read_text()
        assert "compiled for 4 rows" in server.log.read_text()
    assert "site-packages/jaxlib/" in libraries
    assert "site-packages/tensorflow/" not in libraries
