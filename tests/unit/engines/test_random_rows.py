"""Random rows: their values, and the search for rows that a model accepts."""

import numpy as np
import pytest

from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.engines.random_rows import RandomRows, accepted_random_rows
from app.errors import ModelLoadError
from tests.support.engines import Computes


def signature(**inputs):
    specs = tuple(
        TensorSpec(name, np.dtype(dtype), shape)
        for name, (dtype, shape) in inputs.items()
    )
    return Signature(specs, (TensorSpec("output", np.dtype(np.float32), ()),))


def made(dtype, shape=(50,), limit=256, rows=4):
    rows_of = RandomRows(signature(x=(dtype, shape)), free_size=32, limit=limit)
    return rows_of.make(rows, np.random.default_rng(0))["x"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_random_floats_are_between_0_and_1(dtype):
    """Floats have the input's dtype, differ, and lie between 0 and 1."""
    values = made(dtype)
    assert values.dtype == dtype
    assert values.shape == (4, 50)
    assert values.min() >= 0
    assert values.max() <= 1
    assert len(np.unique(values)) > 100


@pytest.mark.parametrize(
    ("dtype", "limit", "most"),
    [("uint8", 256, 254), ("int8", 256, 126), ("int64", 10, 9), ("int32", 2, 1)],
)
def test_random_integers_stay_below_the_limit(dtype, limit, most):
    """Integers start at 0 and end below the limit and their dtype's maximum."""
    values = made(dtype, (5000,), limit)
    assert values.dtype == dtype
    assert (values.min(), values.max()) == (0, most)


def test_random_bools_have_both_values():
    """Bools are true and false."""
    assert set(made("bool").ravel().tolist()) == {False, True}


def test_random_strings_are_texts_of_one_to_twelve_words():
    """Strings are bytes in an array of objects; words have 4 to 8 letters."""
    values = made("O", rows=20)
    assert values.dtype == object
    assert values.shape == (20, 50)
    texts = [text.split(b" ") for text in values.flat]
    assert {len(words) for words in texts} == set(range(1, 13))
    assert all(1 <= len(word) <= 8 for words in texts for word in words)


def test_first_random_text_is_the_shortest_and_the_second_the_longest():
    """So a model that pads to the longest text of a batch shows itself in any."""
    for seed in range(20):
        rows = RandomRows(signature(x=("O", ())), free_size=32, limit=256)
        first, second = rows.make(2, np.random.default_rng(seed))["x"]
        assert (len(first.split()), len(second.split())) == (1, 12)


def test_blank_rows_have_the_shapes_of_random_rows():
    """Rows of zeros have the shapes of random rows, in free dimensions too."""
    rows = RandomRows(signature(x=("float32", (None, 3)), s=("O", ())), 7, 256)
    random, blank = rows.make(2, np.random.default_rng(0)), rows.blank(2)
    assert {name: array.shape for name, array in random.items()} == {
        "x": (2, 7, 3),
        "s": (2,),
    }
    assert blank["x"].tolist() == np.zeros((2, 7, 3)).tolist()
    assert blank["s"].tolist() == [b"", b""]


def test_search_returns_the_first_accepted_rows():
    """A vocabulary of 5 and a limit of 10 tokens are found by trying."""

    def run(batch):
        if batch["x"].max() >= 5:
            raise ValueError("not within the vocabulary")
        if batch["x"].shape[1] > 10:
            raise ValueError("too long")
        return {"output": batch["x"].sum(axis=1)}

    rows = accepted_random_rows(
        Computes(run, signature(x=("int32", (None,)))), DEFAULT_SIGNATURE
    )
    assert (rows.free_size, rows.limit) == (4, 2)
    assert rows.describe() == " (integers below 2, free sizes as 4)"


@pytest.mark.parametrize("smallest", [129, 5000], ids=["refused", "empty output"])
def test_search_tries_longer_rows_for_a_model_with_a_smallest_length(smallest):
    """Rows whose output is empty, or which are refused, are too short."""

    def crop(batch):
        if smallest < 1000 and batch["x"].shape[1] < smallest:
            raise ValueError("output size would be negative")
        return {"output": batch["x"][:, smallest:]}

    rows = accepted_random_rows(
        Computes(crop, signature(x=("float32", (None,)))), DEFAULT_SIGNATURE
    )
    assert rows.free_size == {129: 1024, 5000: 16384}[smallest]


def test_search_tries_no_long_rows_of_pictures():
    """Rows of a million values and more would take the memory of a server."""
    sizes = []

    def run(batch):
        sizes.append(batch["x"].shape[1])
        return {"output": batch["x"][:, 2000:]}

    accepted_random_rows(
        Computes(run, signature(x=("float32", (None, None, 3)))), DEFAULT_SIGNATURE
    )
    assert sizes == [32, 128, 4, 1]


def test_description_of_fixed_float_rows_is_empty():
    """Rows of floats in fixed shapes involve no choice to describe."""
    rows = accepted_random_rows(
        Computes(lambda batch: {"output": batch["x"]}, signature(x=("float32", ()))),
        DEFAULT_SIGNATURE,
    )
    assert rows.describe() == ""


def test_model_that_refuses_all_random_rows_is_a_load_error():
    """The error quotes the model's last error on one line."""

    def run(batch):
        raise ValueError(f"could not parse\n{batch['x'].shape}")

    with pytest.raises(ModelLoadError) as raised:
        accepted_random_rows(Computes(run, signature(x=("O", ()))), DEFAULT_SIGNATURE)
    assert str(raised.value) == (
        "the model refuses random rows: ValueError: could not parse (1,)"
    )
