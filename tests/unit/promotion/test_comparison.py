"""A new version beside the serving one: what refuses it, and what does not."""

from dataclasses import replace

import numpy as np
import pytest

from app.engines.base import Signature
from app.errors import Stopping
from app.promotion.comparison import compare
from app.promotion.report_parts import table
from app.promotion.side import RowGroup
from app.settings.promotion_config import PromotionConfig
from tests.support.promotion import (
    Clock,
    random_scores,
    rows_of,
    side,
    signature,
)

CONFIG = PromotionConfig()


def same(x):
    return x


def shuffled(x):
    return np.roll(x, 1, axis=1)


def nan_in_one_percent(x):
    scores = x.copy()
    scores[np.isin(x[:, 0], BAD[:2, 0]), 0] = np.nan
    return scores


def raising(x):
    if np.isin(x[:, 0], BAD[:4, 0]).any():
        raise ValueError("no such row")
    return x


X = random_scores()
BAD = X[[17, 60, 61, 199]]


@pytest.fixture
def report():
    """Compare a version with one that answers with its input; return the report."""

    def compared(compute, config=CONFIG, *, serving=same, rows=None, **times):
        clock = Clock()
        old = side(1, serving, clock)
        new = side(2, compute, clock, **times)
        return compare(old, new, rows_of(X) if rows is None else rows, config)

    return compared


def test_equal_version_passes(report):
    """Nothing is refused, and all rows were compared."""
    found = report(same)
    assert found.refusal() == ""
    assert (found.compared_rows, found.agreeing_rows) == (200, 200)
    assert [each.rows for each in found.times] == [1, 64]


@pytest.mark.parametrize(
    ("compute", "times", "refusal"),
    [
        (
            shuffled,
            {},
            "agrees in 0 of 200 rows (0 %, min_agreement 0.98); most different: row ",
        ),
        (
            nan_in_one_percent,
            {},
            "answers NaN or infinity in 2 of 200 rows; most different: row 17, scores",
        ),
        (raising, {}, "fails on 4 of 200 rows: ValueError: no such row"),
        (
            same,
            {"seconds": 0.031},
            "takes 3.1 times as long for 1 row (31 ms, 10 ms; max_slowdown 1.5); "
            "takes 3.1 times as long for 64 rows (31 ms, 10 ms; max_slowdown 1.5)",
        ),
        (
            lambda x: x[:-1],
            {},
            "fails on 200 of 200 rows: WrongOutputs: the model gave 0 rows of 'scores'",
        ),
    ],
    ids=["shuffled classes", "NaN", "raises", "slow", "wrong outputs"],
)
def test_faulty_version_is_refused(report, compute, times, refusal):
    """The one line has what is wrong, in how many rows, and the limit."""
    assert report(compute, **times).refusal().startswith(refusal)


def test_most_different_row_is_named(report):
    """With its number and by how much its scores differ."""

    def one_row(x):
        scores = x.copy()
        scores[x[:, 0] == X[17, 0], 3] = 5.0
        return scores

    found = report(one_row, replace(CONFIG, min_agreement=1.0))
    assert found.refusal() == (
        "agrees in 199 of 200 rows (99.5 %, min_agreement 1); most different: row 17, "
        f"scores by {5 - X[17, 3]:.2g}"
    )
    assert f"    row 17, scores by {5 - X[17, 3]:.2g}" in table.lines(found)


def test_slowness_below_a_millisecond_is_noise(report):
    """A model of 0.01 ms may take 0.9 ms."""
    clock = Clock()
    old = side(1, same, clock, seconds=1e-5)
    new = side(2, same, clock, seconds=9e-4)
    assert compare(old, new, rows_of(X), CONFIG).refusal() == ""


@pytest.mark.parametrize("value", [0.05, 0.2])
def test_max_difference_holds_for_every_row(report, value):
    """It takes the place of agreement: one row that is further away is refused."""

    def off(x):
        scores = x.copy()
        scores[x[:, 0] == X[17, 0]] += 0.1
        return scores

    refusal = report(off, replace(CONFIG, max_difference=value)).refusal()
    expected = (
        "differs by more than max_difference 0.05 in 1 of 200 rows; most different: "
        "row 17, scores by 0.1"
    )
    assert refusal == (expected if value < 0.1 else "")


def test_max_difference_lets_top_classes_change(report):
    """Nearly equal scores may change places."""
    config = replace(CONFIG, max_difference=1.0)
    assert report(shuffled, config).refusal() == ""


def test_rows_that_the_serving_version_fails_on_do_not_count(report):
    """Whatever the new version does with them."""
    found = report(same, serving=raising)
    assert found.refusal() == ""
    assert found.serving_failures == (4, "ValueError: no such row")
    assert found.compared_rows == 196
    assert report(raising, serving=raising).refusal() == ""
    text = "version 1 fails on 4 rows, which do not count: ValueError: no such row"
    assert f"  note: {text}" in table.lines(found)


def test_nan_of_the_serving_version_does_not_count(report):
    """The new version may answer with a number, or with NaN too."""
    assert report(same, serving=nan_in_one_percent).refusal() == ""
    assert report(nan_in_one_percent, serving=nan_in_one_percent).refusal() == ""


def test_nan_of_the_serving_version_is_no_difference(report):
    """Not with max_difference either."""
    config = replace(CONFIG, max_difference=0.01)
    assert report(same, config, serving=nan_in_one_percent).refusal() == ""


def test_integers_have_to_be_equal(report):
    """One class id of 200 rows is another: 99.5 % agree."""
    spec = signature(outputs=(), dtype=np.int64)
    old = side(1, lambda x: x.argmax(axis=1), spec=spec)
    new = side(2, lambda x: x.argmax(axis=1) + (x[:, 0] == X[3, 0]), spec=spec)
    found = compare(old, new, rows_of(X), CONFIG)
    assert (found.refusal(), found.agreeing_rows) == ("", 199)
    config = replace(CONFIG, min_agreement=1.0)
    refusal = compare(old, new, rows_of(X), config).refusal()
    assert refusal.endswith("most different: row 3, scores")


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        (signature((12,)), "input x has shape (12,), and version 1 (10,)"),
        (signature((10,), (9,)), "output scores has shape (9,), and version 1 (10,)"),
        (
            signature(dtype=np.int64),
            "output scores has dtype int64, and version 1 float32",
        ),
        (Signature((), signature().outputs), "there is no input x"),
    ],
)
def test_changed_signature_is_refused_if_the_same_is_required(spec, change):
    """Else the report has the change, and compares what still fits."""
    old, new = side(1, same), side(2, lambda x: x[:, :9], spec=spec)
    found = compare(old, new, rows_of(X), CONFIG)
    assert found.refusal().startswith(f"signature changed: {change}")
    config = replace(CONFIG, require_same_signature=False)
    found = compare(old, new, rows_of(X), config)
    assert "signature changed" not in found.refusal()
    assert f"  note: signature changed: {change}" in table.lines(found)


def test_wider_signature_is_no_change():
    """An input that takes more shapes, and another signature."""
    old = side(1, same)
    new = side(2, same, spec=signature((None,), (None,)))
    new = replace(new, signatures={**new.signatures, "other": signature()})
    assert compare(old, new, rows_of(X), CONFIG).refusal() == ""


def test_missing_signature_is_a_change():
    """The rows of the others are compared."""
    old, new = side(1, same), side(2, same)
    old = replace(old, signatures={**old.signatures, "other": signature()})
    rows = rows_of(X)
    rows = replace(rows, groups=[RowGroup("other", {"x": X[:5]}), *rows.groups])
    found = compare(old, new, rows, CONFIG)
    assert found.refusal() == "signature changed: there is no signature other"
    assert "  note: 5 of 205 rows do not fit the new version" in table.lines(found)
    assert found.agreeing_rows == 200


@pytest.mark.parametrize("slow", [1, 2])
def test_much_slower_version_ends_the_comparison_in_time(slow):
    """The report says on how many rows it is based."""
    clock = Clock()
    sides = [
        side(version, same, clock, seconds=10 if version == slow else 0.01)
        for version in (1, 2)
    ]
    found = compare(*sides, rows_of(X), CONFIG, limit_s=60)
    assert clock.now < 60 + 20
    assert 1 <= found.ran_rows < 200
    note = f"out of time: based on {found.ran_rows} of 200 rows"
    assert f"  note: {note}" in table.lines(found)
    assert ("times as long" in found.refusal()) == (slow == 2)


def test_failing_on_every_row_ends_in_time(report):
    """Batches are halved until the limit of time, not to the end."""

    def fails(x):
        raise ValueError("never")

    clock = Clock()
    sides = side(1, same, clock, seconds=1), side(2, fails, clock, seconds=1)
    found = compare(*sides, rows_of(X), CONFIG, limit_s=60)
    # Three fifths of the limit, and one pair of batches.
    assert clock.now <= 36 + 2
    assert f"fails on {found.ran_rows} of {found.ran_rows} rows: Val" in found.refusal()


def test_no_rows_are_a_refusal(report):
    """The text has the notes on what was tried."""
    rows = replace(rows_of(X), groups=(), notes=["the model refuses random rows"])
    assert report(same, rows=rows).refusal() == (
        "there are no rows to compare on: the model refuses random rows"
    )


def test_unavailable_is_the_callers(report):
    """A server that stops meanwhile says nothing of the version."""

    def stops(x):
        raise Stopping("the server is shutting down")

    with pytest.raises(Stopping):
        report(stops)
