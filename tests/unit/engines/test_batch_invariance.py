"""Batch invariance: which dependence of rows on their batch is detected."""

import itertools

import numpy as np
import pytest

from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.engines.batch_invariance import compare
from app.engines.random_rows import RandomRows
from tests.support.engines import Computes

FLOAT32 = np.dtype(np.float32)
SIGNATURE = Signature(
    (TensorSpec("x", FLOAT32, (3,)),), (TensorSpec("output", FLOAT32, (3,)),)
)


def shares(compute, batch_rows=16):
    """Return the difference for each condition of a model that computes one output."""
    engine = Computes(lambda batch: {"output": compute(batch["x"])}, SIGNATURE)
    rows = RandomRows(SIGNATURE, free_size=1, limit=2)
    comparison = compare(engine, DEFAULT_SIGNATURE, rows, batch_rows)
    return {each.condition: each.share for each in comparison.differences}


def conditions_that_matter(compute, batch_rows=16):
    return {name for name, share in shares(compute, batch_rows).items() if share}


@pytest.mark.parametrize("batch_rows", [2, 3, 16, 64])
def test_independent_rows_show_no_difference(batch_rows):
    """A model that computes each row by itself shows no difference at all."""
    assert shares(lambda x: x * 2 + 1, batch_rows) == {
        "alone again": 0.0,
        "among others": 0.0,
        "in another place": 0.0,
        "beside zeros": 0.0,
        "beside copies": 0.0,
    }


@pytest.mark.parametrize("batch_rows", [2, 3, 16, 64])
def test_mean_over_the_batch_is_detected(batch_rows):
    """Subtracting the batch's mean shows under each condition but equal rows."""
    found = conditions_that_matter(lambda x: x - x.mean(axis=0), batch_rows)
    assert found - {"beside copies"} == {
        "among others",
        "in another place",
        "beside zeros",
    }
    # With a single compared row, all copies are of that row.
    assert ("beside copies" in found) == (batch_rows > 3)


def test_dependence_on_zero_rows_is_detected():
    """A model that counts rows of zeros differs beside zeros only."""
    assert conditions_that_matter(lambda x: x + (x == 0).all(axis=1).sum()) == {
        "beside zeros"
    }


def test_dependence_on_equal_rows_is_detected():
    """A model that looks for equal rows differs beside copies only."""

    def compute(x):
        return x + (len(np.unique(x, axis=0)) < len(x) - (x == 0).all(axis=1).sum())

    assert conditions_that_matter(compute) == {"beside copies"}


def test_dependence_on_position_is_detected():
    """A model that treats the last rows differently is detected by a reversed batch."""

    def compute(x):
        return x + (np.arange(len(x)) > 12)[:, None]

    assert conditions_that_matter(compute) == {"in another place"}


def test_nondeterministic_model_is_detected():
    """A model whose outputs change from run to run differs from itself alone."""
    calls = itertools.count()
    assert "alone again" in conditions_that_matter(lambda x: x + next(calls))


def test_difference_of_floats_is_relative_to_the_largest_value():
    """One two-thousandth of the largest value is 5e-4, however large that is."""

    def compute(x):
        return np.where(len(x) > 1, 2001.0, 2000.0) + 0 * x

    assert shares(compute)["among others"] == pytest.approx(1 / 2000)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_equal_only_themselves(value):
    """NaN and infinity equal themselves, and are infinitely far from numbers."""
    assert conditions_that_matter(lambda x: x * 0 + value) == set()
    different_alone = shares(lambda x: x * 0 + (value if len(x) == 1 else 1.0))
    assert different_alone["among others"] == np.inf


@pytest.mark.parametrize("dtype", [np.int64, bool, object])
def test_difference_of_other_dtypes_is_the_unequal_fraction(dtype):
    """For integers, bools and strings, the fraction of unequal values is shown."""

    def compute(x):
        values = np.zeros(x.shape, dtype)
        values[:, 0] = len(x) == 1
        return values

    assert shares(compute)["among others"] == pytest.approx(1 / 3)


def test_outputs_of_another_shape_are_infinitely_far():
    """A model whose output grows with the batch differs by infinity."""
    assert shares(lambda x: np.zeros((len(x), len(x))))["among others"] == np.inf


def test_output_that_differs_most_is_named():
    """Of several outputs, the one with the largest difference is reported."""
    engine = Computes(
        lambda batch: {
            "steady": batch["x"],
            "shaky": batch["x"] + len(batch["x"]),
        },
        SIGNATURE,
    )
    rows = RandomRows(SIGNATURE, free_size=1, limit=2)
    comparison = compare(engine, DEFAULT_SIGNATURE, rows, 4)
    assert comparison.worst().output == "shaky"
    assert comparison.worst().share > 1
    # Another row differs in both, but little relative to the larger values.
    assert comparison.other_row.output == "steady"


def test_difference_to_another_row_is_reported():
    """The difference between rows is reported beside that between batches."""
    engine = Computes(lambda batch: {"output": batch["x"]}, SIGNATURE)
    rows = RandomRows(SIGNATURE, free_size=1, limit=2)
    assert compare(engine, DEFAULT_SIGNATURE, rows, 8).other_row.share > 0.3
    engine = Computes(lambda batch: {"output": batch["x"] * 0 + 5}, SIGNATURE)
    assert compare(engine, DEFAULT_SIGNATURE, rows, 8).other_row.share == 0
