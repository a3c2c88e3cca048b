"""How long each set-up is measured."""

import itertools

import pytest

from bench.loadtest.setups import QUICK_USERS, SETUPS, USERS, timing_of
from testing.server import workers_in


@pytest.mark.parametrize(
    "setup", list(SETUPS.values())[:2], ids=lambda setup: setup.name
)
@pytest.mark.parametrize("users", USERS)
def test_unbatched_users_are_served_three_times(setup, users):
    """Without batching each user is served twice to warm up and then three times."""
    devices = workers_in(setup.arguments)
    cycle_s = users * 0.3 / devices
    timing = timing_of(setup, users, row_s=0.3, simulated=True, quick=False)
    assert timing.warm_up_s >= 2 * cycle_s
    assert timing.measured_s >= 3 * cycle_s


@pytest.mark.parametrize(
    ("quick", "users", "limit_s"), [(True, QUICK_USERS, 145), (False, USERS, 840)]
)
def test_documented_durations_are_kept(quick, users, limit_s):
    """Warm-ups and measurements leave 35 s of three minutes, one minute of 15."""
    whole_s = 0.0
    for setup, count in itertools.product(SETUPS.values(), users):
        timing = timing_of(setup, count, row_s=0.3, simulated=True, quick=quick)
        whole_s += sum(timing)
    assert whole_s <= limit_s


@pytest.mark.parametrize("users", USERS)
def test_only_simulated_devices_are_measured_long_enough_for_theory(users):
    """No theory gives a real model's times, so they are measured as long as naive's."""
    naive, auto = SETUPS["naive"], SETUPS["batching, auto"]
    for simulated in (False, True):
        timings = [
            timing_of(setup, users, row_s=0.001, simulated=simulated, quick=False)
            for setup in (naive, auto)
        ]
        assert (timings[0] != timings[1]) == (simulated and users < 64)
