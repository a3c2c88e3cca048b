"""Capturing takes at most a share of the time."""

from app.capture.time_budget import TimeBudget


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self):
        return self.now


def test_time_budget_is_left_until_more_than_two_seconds_share_is_spent():
    """Time in which nothing was captured is saved, for two seconds at most."""
    budget = TimeBudget(Clock())
    for _ in range(4):
        assert budget.is_left()
        budget.spend(0.005)
    budget.spend(0.001)
    assert not budget.is_left()


def test_time_budget_is_left_again_after_a_hundred_times_what_was_spent():
    """Work takes a hundredth of the time in the long run."""
    clock = Clock()
    budget = TimeBudget(clock)
    budget.spend(0.020)
    begun, spent_s = clock.now, 0.0
    while clock.now < begun + 100:
        if budget.is_left():
            budget.spend(0.010)
            spent_s += 0.010
        clock.now += 0.001
    assert 0.95 < spent_s < 1.05
