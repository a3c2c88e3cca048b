"""What is found out about rows and their neighbours."""

import itertools

import numpy as np
import pytest

from app.commands.neighbours import compare
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.engines.random_rows import RandomRows
from tests.support.engines import Computes

FLOAT32 = np.dtype(np.float32)
SIGNATURE = Signature(
    (TensorSpec("x", FLOAT32, (3,)),), (TensorSpec("output", FLOAT32, (3,)),)
)


def shares(compute, batch_rows=16):
    """The difference for each company; `compute` gives the one output of rows."""
    engine = Computes(lambda batch: {"output": compute(batch["x"])}, SIGNATURE)
    rows = RandomRows(SIGNATURE, free_size=1, limit=2)
    comparison = compare(engine, DEFAULT_SIGNATURE, rows, batch_rows)
    return {each.company: each.share for each in comparison.differences}


def companies_that_matter(compute, batch_rows=16):
    return {name for name, share in shares(compute, batch_rows).items() if share}


@pytest.mark.parametrize("batch_rows", [2, 3, 16, 64])
def test_rows_that_mind_their_own_business(batch_rows):
    """A model that computes each row by itself shows no difference at all."""
    assert shares(lambda x: x * 2 + 1, batch_rows) == {
        "alone again": 0.0,
        "among others": 0.0,
        "in another place": 0.0,
        "beside zeros": 0.0,
        "beside copies": 0.0,
    }


@pytest.mark.parametrize("batch_rows", [2, 3, 16, 64])
def test_a_mean_over_the_batch(batch_rows):
    """A model that takes off the batch's mean is found out by all but equal company."""
    found = companies_that_matter(lambda x: x - x.mean(axis=0), batch_rows)
    assert found - {"beside copies"} == {
        "among others",
        "in another place",
        "beside zeros",
    }
    # A single row that is compared has only copies of itself there.
    assert ("beside copies" in found) == (batch_rows > 3)


def test_padding_alone():
    """A model that minds only rows of zeros is found out by these."""
    assert companies_that_matter(lambda x: x + (x == 0).all(axis=1).sum()) == {
        "beside zeros"
    }


def test_copies_alone():
    """A model that minds only equal rows is found out by copies."""

    def compute(x):
        return x + (len(np.unique(x, axis=0)) < len(x) - (x == 0).all(axis=1).sum())

    assert companies_that_matter(compute) == {"beside copies"}


def test_the_place_alone():
    """A model that minds who comes last is found out by turning the batch round."""

    def compute(x):
        return x + (np.arange(len(x)) > 12)[:, None]

    assert companies_that_matter(compute) == {"in another place"}


def test_answers_that_are_not_the_same_twice():
    """A model that rolls dice differs when a row is run alone again."""
    dice = itertools.count()
    assert "alone again" in companies_that_matter(lambda x: x + next(dice))


def test_floats_are_measured_by_the_largest_value():
    """One thousandth of the largest value is 1e-3, however large that is."""

    def compute(x):
        return np.where(len(x) > 1, 2001.0, 2000.0) + 0 * x

    assert shares(compute)["among others"] == pytest.approx(1 / 2000)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers(value):
    """NaN and an infinity are equal to themselves, and infinitely far from numbers."""
    assert companies_that_matter(lambda x: x * 0 + value) == set()
    alone_only = shares(lambda x: x * 0 + (value if len(x) == 1 else 1.0))
    assert alone_only["among others"] == np.inf


@pytest.mark.parametrize("dtype", [np.int64, bool, object])
def test_what_is_no_float_is_equal_or_not(dtype):
    """Of integers, bools and strings the share of values that differ is told."""

    def compute(x):
        values = np.zeros(x.shape, dtype)
        values[:, 0] = len(x) == 1
        return values

    assert shares(compute)["among others"] == pytest.approx(1 / 3)


def test_answers_of_another_shape():
    """A model whose answers grow with the batch is infinitely far off."""
    assert shares(lambda x: np.zeros((len(x), len(x))))["among others"] == np.inf


def test_the_output_that_differs_most_is_named():
    """With several outputs the one with the largest difference is told."""
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
    # Another row differs in both, and not by much in the output with large values.
    assert comparison.other_row.output == "steady"


def test_the_answer_of_another_row_is_far():
    """What differs between rows is told beside what differs between batches."""
    engine = Computes(lambda batch: {"output": batch["x"]}, SIGNATURE)
    rows = RandomRows(SIGNATURE, free_size=1, limit=2)
    assert compare(engine, DEFAULT_SIGNATURE, rows, 8).other_row.share > 0.3
    engine = Computes(lambda batch: {"output": batch["x"] * 0 + 5}, SIGNATURE)
    assert compare(engine, DEFAULT_SIGNATURE, rows, 8).other_row.share == 0
