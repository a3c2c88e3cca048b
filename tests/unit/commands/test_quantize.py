"""`models quantize` without a framework, and agreement between outputs."""

import json

import numpy as np
import pytest

from app.engines.base import Signature, TensorSpec
from app.promotion.measures.agreement import compare
from tests.support.commands import run_models
from tests.support.engines import Computes

NO_KERAS_FILE = "no model.keras or model.h5 or model.hdf5: only Keras files are"


@pytest.fixture
def command(tmp_path):
    """Run `models quantize` on a folder that has a simulated model `a`."""
    version = tmp_path / "a" / "1"
    version.mkdir(parents=True)
    (version / "simulated.json").write_text(json.dumps({"base_ms": 0}))

    def run(*args):
        status, output = run_models(tmp_path, "quantize", *args)
        assert status != 0
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["1"]
        return status, output.splitlines()[-1]

    return run


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        (["a"], 2, "say to what; there is: --int8"),
        (["c", "--int8"], 1, "no model 'c'; there are: a"),
        (["a", "--int8", "--version", "7"], 1, "model 'a' has no version 7; it has: 1"),
        (["a", "--int8"], 1, f"version 1 holds {NO_KERAS_FILE} quantized"),
    ],
)
def test_quantize_refuses_invalid_arguments(command, args, status, error):
    """Each wrong call is one line, before a framework is imported."""
    assert command(*args) == (status, f"Error: {error}")


def agreement(expected, actual, dtype=np.float32):
    """Return the agreement of two models with these outputs, run in batches of 2."""
    expected, actual = (np.array(each, dtype) for each in (expected, actual))
    signature = Signature(
        (TensorSpec("row", np.dtype(int), ()),),
        (TensorSpec("y", np.dtype(dtype), expected.shape[1:]),),
    )
    engines = [
        Computes(lambda batch, rows=rows: {"y": rows[batch["row"]]}, signature)
        for rows in (expected, actual)
    ]
    numbers = np.arange(len(expected))
    batches = [{"row": numbers[n : n + 2]} for n in range(0, len(expected), 2)]
    (found,) = compare(*engines, batches)
    return found


def test_scores_agree_if_the_top_class_is_equal():
    """Scores count by top class, row by row, over all batches."""
    found = agreement([[1, 2], [2, 1], [0, 4]], [[1, 3], [1, 2], [0, 3]])
    assert found.agrees.tolist() == [True, False, True]
    assert found.differences.max() == 1.0
    assert found.share() == pytest.approx(2 / 3)
    assert found.top_classes == 2
    assert found.describe() == (
        "y: the same top class in 66.67 % of 3 rows, largest difference 1"
    )


def test_rows_with_nan_do_not_agree():
    """A row with NaN does not agree, even if its top class is the same."""
    found = agreement([[1, 2], [1, 2]], [[np.nan, 3], [1, 3]])
    assert found.agrees.tolist() == [False, True]


def test_floats_agree_within_one_percent_of_the_largest():
    """Floats that are not scores count by distance, relative to the largest value."""
    found = agreement([[100], [1], [3]], [[99.5], [2], [5]])
    assert found.agrees.tolist() == [True, True, False]
    assert found.differences.max() == 2.0
    assert "values within 1% of the largest" in found.describe()
    assert found.top_classes is None


def test_other_dtypes_agree_if_all_values_are_equal():
    """Integers agree where all values of a row are equal."""
    found = agreement([[1, 2], [3, 4]], [[1, 2], [3, 5]], np.int64)
    assert found.agrees.tolist() == [True, False]
