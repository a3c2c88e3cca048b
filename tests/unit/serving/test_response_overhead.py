"""The estimate of the time from a batch to its encoded responses."""

import pytest

from app.serving.response_overhead import ResponseOverhead


@pytest.mark.parametrize(
    ("seconds", "reserved_s"),
    [
        ([], 0),
        ([0.02] * 200, pytest.approx(0.02, abs=0.002)),
        ([0.01, 0.05] * 100, pytest.approx(0.1, abs=0.05)),
    ],
    ids=["none yet", "steady", "uneven"],
)
def test_reserve_follows_the_responses(seconds, reserved_s):
    """The mean is reserved, with a margin."""
    overhead = ResponseOverhead()
    for each in seconds:
        overhead.add(each)
    assert overhead.reserve_s == reserved_s
