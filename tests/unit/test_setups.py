"""How long each set-up is measured."""

import pytest

from bench.loadtest.setups import QUICK_USERS, SETUPS, USERS, timing_of, workers_of


@pytest.mark.parametrize("setup", SETUPS[:2], ids=lambda setup: setup.name)
@pytest.mark.parametrize("users", USERS)
def test_no_batching_is_measured_for_three_cycles(setup, users):
    """Without batching each user is served twice to warm up and then three times."""
    devices = workers_of(setup)
    cycle_s = users * 0.3 / devices
    timing = timing_of(setup, users, row_s=0.3, devices=devices, quick=False)
    assert timing.warm_up_s >= 2 * cycle_s
    assert timing.measured_s >= 3 * cycle_s


@pytest.mark.parametrize(
    ("quick", "users", "limit_s"), [(True, QUICK_USERS, 145), (False, USERS, 840)]
)
def test_the_times_fit_what_is_promised(quick, users, limit_s):
    """All warm-ups and measurements leave half a minute of three, a minute of 15."""
    whole_s = sum(
        sum(timing_of(each, n, row_s=0.3, devices=workers_of(each), quick=quick))
        for each in SETUPS
        for n in users
    )
    assert whole_s <= limit_s
