"""Batch invariance: which dependence of rows on their batch is detected."""

import itertools

import numpy as np
import pytest

from app.engines.base import Signature, TensorSpec
from app.engines.batch_invariance import compare
from app.engines.random_rows import RandomRows

FLOAT32 = np.dtype(np.float32)
SIGNATURE = Signature(
    (TensorSpec("x", FLOAT32, (3,)),), (TensorSpec("output", FLOAT32, (3,)),)
)
ROWS = RandomRows(SIGNATURE, free_size=1, limit=2)


def compared(compute, batch_rows=16):
    """Return the comparison of a model that computes one output."""
    return compare(lambda batch: {"output": compute(batch["x"])}, ROWS, batch_rows)


def shares(compute, batch_rows=16):
    """Return the difference for each condition."""
    found = compared(compute, batch_rows).differences
    return {each.condition: each.share for each in found}


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
        "beside large rows": 0.0,
        "beside copies": 0.0,
    }
    comparison = compared(lambda x: x * 2 + 1, batch_rows)
    assert (comparison.problem, comparison.not_comparable) == ("", "")


@pytest.mark.parametrize("batch_rows", [2, 3, 16, 64])
def test_mean_over_the_batch_is_detected(batch_rows):
    """Subtracting the batch's mean shows under each condition but equal rows."""
    found = shares(lambda x: x - x.mean(axis=0), batch_rows)
    assert {name for name, share in found.items() if share > 1e-6} == {
        "among others",
        "in another place",
        "beside zeros",
        "beside large rows",
    }
    assert compared(lambda x: x - x.mean(axis=0), batch_rows).problem


def test_dependence_on_zero_rows_is_detected():
    """A model that counts rows of zeros differs beside zeros only."""
    assert conditions_that_matter(lambda x: x + (x == 0).all(axis=1).sum()) == {
        "beside zeros"
    }


def test_dependence_on_equal_rows_is_detected():
    """A model that looks for equal rows differs beside copies, too."""

    def compute(x):
        return x + (len(np.unique(x, axis=0)) < len(x) - (x == 0).all(axis=1).sum())

    assert "beside copies" in conditions_that_matter(compute)
    assert compared(compute).problem


@pytest.mark.parametrize("place", [0, 3, 7])
def test_each_row_of_the_comparison_is_compared(place):
    """A model that answers any one of the rows wrongly is detected."""

    def compute(x):
        return x + (len(x) > 1) * (np.arange(len(x)) == place)[:, None]

    assert conditions_that_matter(compute, 8) >= {"among others", "in another place"}
    assert compared(compute, 8).problem


def test_nondeterministic_model_is_not_comparable():
    """A model whose outputs change from run to run differs from itself alone."""
    calls = itertools.count()
    assert "alone again" in conditions_that_matter(lambda x: x + next(calls))
    comparison = compared(lambda x: x + next(calls))
    assert "from run to run" in comparison.not_comparable
    assert not comparison.problem


@pytest.mark.parametrize(
    ("rounding", "dependence", "is_found"),
    [
        (0.0, 5e-5, False),
        (0.0, 2e-4, True),
        (1e-6, 2e-4, True),
        (1e-3, 5e-3, False),
        (1e-3, 2e-2, True),
        (1e-2, 5e-2, False),
        (1e-2, 0.2, True),
        # More than 0.1 is no rounding.
        (0.2, 0.0, True),
    ],
)
def test_difference_counts_from_ten_times_the_rounding_on(
    rounding, dependence, is_found
):
    """Rounding is how far a row beside copies of itself is from its output alone."""

    def compute(x):
        others = (x != x[:1]).any()
        return x * 0 + 1 + (len(x) > 1) * rounding + others * dependence

    assert bool(compared(compute).problem) == is_found


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
    comparison = compared(lambda x: np.zeros((len(x), len(x))))
    assert {each.share for each in comparison.differences} == {0, np.inf}
    assert comparison.problem == (
        "a row's output has shape (1,) alone and (16,) among others"
    )


def test_output_that_differs_is_named():
    """Of several outputs, the one with a difference is reported."""

    def run(batch):
        return {"steady": batch["x"], "shaky": batch["x"] + len(batch["x"])}

    comparison = compare(run, ROWS, 4)
    assert "a row's shaky differs by" in comparison.problem
    # Another row differs in both, but little relative to the larger values.
    assert comparison.other_row.output == "steady"


def test_difference_to_another_row_is_reported():
    """The difference between rows is reported beside that between batches."""
    assert compared(lambda x: x, 8).other_row.share > 0.3
    assert compared(lambda x: x * 0 + 5, 8).other_row.share == 0
