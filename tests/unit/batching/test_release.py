"""Release rules: each alone, and in closed loops of clients in virtual time."""

import pytest

from app.batching.batch_times import BatchTimes
from app.batching.release import Adaptive, FixedTimeout, release_for
from app.settings import Settings
from tests.support.closed_loop import ClosedLoop

BATCHES = {
    "300 ms": lambda rows: 0.3,
    "250 ms and 50 ms a row": lambda rows: 0.25 + 0.05 * rows,
    "50 ms and 2 ms a row": lambda rows: 0.05 + 0.002 * rows,
    "10 ms": lambda rows: 0.01,
    "47 ms and half a ms a row": lambda rows: 0.047 + 0.0005 * rows,
}
THINKING = {
    "1 to 3 s": lambda chance, client, place: chance.uniform(1, 3),
    "none, 0.7 ms apart": lambda chance, client, place: 0.0007 * (place + 1),
    "none, 2 ms apart, uneven": lambda chance, client, place: (
        0.002 * (place + 1) * chance.uniform(0.5, 1.5)
    ),
    "1 to 20 ms": lambda chance, client, place: chance.uniform(0.001, 0.02),
    "half of them": lambda chance, client, place: (
        chance.uniform(1, 3) if client % 2 else 0.0007 * (place + 1)
    ),
    "100 ms, exponential": lambda chance, client, place: chance.expovariate(10),
    "200 ms for one, none for the others": lambda chance, client, place: (
        0.0007 * (place + 1) if client else 0.2
    ),
}


def _at_once(expected_s):
    return FixedTimeout(timeout_s=0)


def _waits(rule, clients, batch, thinking, requests):
    return ClosedLoop(rule, clients, BATCHES[batch], THINKING[thinking]).run(requests)


@pytest.mark.parametrize(
    ("age_s", "hold_s"),
    [
        pytest.param(0.0, 0.5, id="just arrived"),
        pytest.param(0.25, 0.25, id="half the timeout"),
        pytest.param(0.5, 0.0, id="as old as the timeout"),
        pytest.param(2.0, -1.5, id="older, behind a slow batch"),
    ],
)
def test_fixed_timeout_holds_for_the_rest_of_the_timeout(age_s, hold_s):
    """FixedTimeout holds until the oldest row has its age, whatever it learns."""
    rule = FixedTimeout(timeout_s=0.5)
    rule.arrived([(1, 999.0)])
    rule.finished(1, 999.5)
    assert rule.hold_s(1, oldest_at=1000.0, now=1000.0 + age_s) == hold_s


def test_unset_batch_timeout_selects_the_adaptive_rule():
    """Without a timeout the rule is Adaptive."""
    settings = Settings(batch_timeout_micros=None)
    assert isinstance(release_for(settings, BatchTimes().expected_s), Adaptive)


@pytest.mark.parametrize(
    ("micros", "hold_s"), [(250_000, 0.25), (0, 0.0)], ids=["250 ms", "zero"]
)
def test_batch_timeout_micros_selects_the_fixed_rule(micros, hold_s):
    """A timeout of some microseconds, zero too, makes a FixedTimeout of seconds."""
    settings = Settings(batch_timeout_micros=micros)
    rule = release_for(settings, BatchTimes().expected_s)
    assert isinstance(rule, FixedTimeout)
    assert rule.hold_s(1, oldest_at=1000.0, now=1000.0) == hold_s


@pytest.mark.parametrize("rows", [1, 64], ids=["one row", "many rows"])
def test_adaptive_starts_the_first_batch_at_once(rows):
    """Without a batch before it a batch starts at once, whatever is queued."""
    rule = Adaptive(BatchTimes().expected_s)
    assert rule.hold_s(rows, oldest_at=1000.0, now=1000.0) == 0


def _learned(batches=20):
    """Return a rule whose 8 clients always return, 1 ms apart, and the time now."""
    times, now = BatchTimes(), 1000.0
    rule = Adaptive(times.expected_s)
    for _ in range(batches):
        times.add(8, 0.3)
        rule.finished(8, now)
        for n in range(8):
            rule.arrived([(1, now + 0.001 * (n + 1))])
        now += 0.3
    rule.finished(8, now)
    return rule, now


def test_adaptive_holds_for_clients_that_always_return():
    """With one to seven of eight back a batch is held, and with all it starts."""
    rule, now = _learned()
    for n in range(8):
        now += 0.001
        rule.arrived([(1, now)])
        hold_s = rule.hold_s(n + 1, now, now)
        assert (hold_s > 0) == (n < 7)
        assert hold_s < 0.02


def test_adaptive_does_not_hold_after_a_hold_that_failed():
    """After a hold in which clients did not return, four batches start at once."""
    rule, now = _learned()
    rule.arrived([(1, now + 0.001)])
    assert rule.hold_s(1, now, now + 0.001) > 0
    assert rule.hold_s(1, now, now + 0.1) <= 0
    held = []
    for _ in range(6):
        now += 0.3
        rule.finished(8, now)
        for n in range(7):
            rule.arrived([(1, now + 0.001 * (n + 1))])
        held.append(rule.hold_s(7, now, now + 0.007) > 0)
        rule.arrived([(1, now + 0.008)])
    assert held == [False] * 4 + [True] * 2


@pytest.mark.parametrize(
    ("clients", "thinking", "most_s"),
    [
        (1, "1 to 3 s", 0.305),
        (5, "1 to 3 s", 0.385),
        (20, "1 to 3 s", 0.455),
        (20, "none, 0.7 ms apart", 0.320),
        (64, "none, 0.7 ms apart", 0.335),
    ],
)
def test_adaptive_mean_is_low_with_and_without_think_time(clients, thinking, most_s):
    """A model of 300 ms answers within these mean times."""
    waits = _waits(Adaptive, clients, "300 ms", thinking, 6000)
    assert waits.mean_s <= most_s


@pytest.mark.parametrize(
    ("clients", "thinking", "most"),
    [
        # Clients that take half of a batch's time to return.
        (32, "none, 0.7 ms apart", 0.9),
        (33, "200 ms for one, none for the others", 0.8),
    ],
)
def test_adaptive_beats_starting_at_once_in_a_closed_loop(clients, thinking, most):
    """Clients that return soon share a batch, beside one that thinks as well."""
    load = (clients, "47 ms and half a ms a row", thinking, 3000)
    assert _waits(Adaptive, *load).mean_s <= most * _waits(_at_once, *load).mean_s


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("thinking", THINKING)
def test_adaptive_costs_at_most_ten_percent_on_any_load(batch, thinking):
    """Neither p95 nor the mean is more than 10 % above starting at once."""
    # Few clients settle sooner.
    for clients, requests in ((2, 300), (5, 300), (20, 1500), (64, 900)):
        at_once = _waits(_at_once, clients, batch, thinking, requests)
        waits = _waits(Adaptive, clients, batch, thinking, requests)
        assert waits.p95_s <= 1.1 * at_once.p95_s, clients
        assert waits.mean_s <= 1.1 * at_once.mean_s, clients
