"""Comparison of an engine's outputs with TensorFlow's reference outputs."""

import logging

import numpy as np
import pytest

from app.engines.base import Signature, TensorSpec
from app.engines.reference import Reference, read_reference, write_reference
from app.errors import ModelLoadError
from tests.support.engines import Computes

FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)
SIGNATURE = Signature(
    (TensorSpec("row", FLOAT32, (None,)),),
    (TensorSpec("scores", FLOAT32, (2,)), TensorSpec("class/top", INT64, ())),
)
# The first value is the row's number.
ROWS = {"row": np.array([[0, 1, 1], [1, 1, 1]], np.float32)}
OUTPUTS = {
    "scores": np.array([[0.5, 0.25], [0.125, 0.0]], np.float32),
    "class/top": np.array([0, 1]),
}
REFERENCE = Reference(SIGNATURE, ROWS, OUTPUTS, weight_bytes=8)


def engine_with(**changed):
    outputs = OUTPUTS | changed

    def run(batch):
        (row,) = batch["row"][:, 0].astype(int)
        return {name: array[row : row + 1] for name, array in outputs.items()}

    return Computes(run, SIGNATURE)


def test_outputs_within_tolerance_are_logged(caplog):
    """The largest difference is logged with its output."""
    near = OUTPUTS["scores"] + np.float32(0.0004)
    with caplog.at_level(logging.INFO):
        REFERENCE.check(engine_with(scores=near))
    (line,) = caplog.messages
    assert line == (
        "function: scores differs from TensorFlow's by up to 8.0e-04 of its largest "
        "value"
    )


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        pytest.param(
            {"scores": OUTPUTS["scores"] + np.float32(0.0006)},
            "scores differs from TensorFlow's by up to 1.2e-03 of its largest value, "
            "more than 0.001",
            id="relative to the largest",
        ),
        pytest.param(
            {"scores": OUTPUTS["scores"] * np.nan},
            "scores differs from TensorFlow's by up to inf",
            id="NaN",
        ),
        pytest.param(
            {"class/top": np.array([0, 0])},
            "class/top differs from TensorFlow's by up to 5.0e-01",
            id="half of the classes",
        ),
        pytest.param(
            {"scores": OUTPUTS["scores"][:1]},
            "scores differs from TensorFlow's by up to inf",
            id="fewer rows",
        ),
    ],
)
def test_outputs_beyond_tolerance_are_a_load_error(changed, text):
    """The error names the output that differs most, and by how much."""
    with pytest.raises(ModelLoadError) as raised:
        REFERENCE.check(engine_with(**changed))
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no such kernel", "no such kernel"),
        (
            "Exception encountered when calling Norm.call().\n\n\x1b[1mNo [-1].\nAt:"
            "\x1b[0m\n\nArguments received by Norm.call():\n  - x=jnp.ndarray",
            "Norm: No [-1].",
        ),
    ],
)
def test_engine_that_raises_on_reference_rows_is_a_load_error(text, reason):
    """The error quotes the reason; of a Keras layer, its class and first line."""

    def fail(_):
        raise RuntimeError(text)

    with pytest.raises(ModelLoadError) as raised:
        REFERENCE.check(Computes(fail, SIGNATURE))
    assert str(raised.value) == (
        f"fails on random rows that TensorFlow computes: {reason}"
    )


def test_reference_is_the_same_after_write_and_read(tmp_path):
    """Signature, rows and outputs survive the way between processes."""
    write_reference(tmp_path, REFERENCE)
    found = read_reference(tmp_path)
    assert found.signature == SIGNATURE
    assert found.weight_bytes == 8
    np.testing.assert_array_equal(found.rows["row"], ROWS["row"])
    for name, array in OUTPUTS.items():
        np.testing.assert_array_equal(found.outputs[name], array, strict=True)
