"""The estimate of the time from a batch to its encoded responses."""

import pytest

from app.serving.response_overhead import ResponseOverhead


@pytest.mark.parametrize(
    ("seconds", "timeout_s", "reserved_s"),
    [
        ([], 1.0, 0),
        ([0.02] * 200, 1.0, pytest.approx(0.02, abs=0.002)),
        ([0.01, 0.05] * 100, 1.0, pytest.approx(0.1, abs=0.05)),
        ([10.0] * 200, 0.2, 0.05),
    ],
    ids=["none yet", "steady", "uneven", "a quarter at most"],
)
def test_reserve_follows_the_responses(seconds, timeout_s, reserved_s):
    """The mean is reserved, with a margin, up to a quarter of the timeout."""
    overhead = ResponseOverhead()
    for each in seconds:
        overhead.add(each)
    assert overhead.reserve_s(timeout_s) == reserved_s
