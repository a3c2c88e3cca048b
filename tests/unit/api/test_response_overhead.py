"""How long answers take on their way out."""

import pytest

from app.api.response_overhead import ResponseOverhead


def _after(*seconds):
    way_back = ResponseOverhead()
    for each in seconds:
        way_back.took(each)
    return way_back


def test_nothing_is_kept_before_the_first_answer():
    """A request's whole time is there for its rows as long as nothing is known."""
    assert ResponseOverhead().reserve_s(1.0) == 0


def test_steady_answers_keep_their_time():
    """After many answers that took 20 ms, 20 ms are kept and hardly more."""
    assert _after(*[0.02] * 200).reserve_s(1.0) == pytest.approx(0.02, abs=0.002)


def test_uneven_answers_keep_more():
    """Where answers take 10 or 50 ms, more than the longest is kept."""
    assert 0.05 < _after(*[0.01, 0.05] * 100).reserve_s(1.0) < 0.15


def test_no_more_than_a_quarter_is_kept():
    """However long answers took, three quarters of a request's time are its rows'."""
    assert _after(*[10.0] * 200).reserve_s(0.2) == 0.05
