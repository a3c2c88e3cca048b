"""When a batch starts: each rule by itself, and in closed loops of virtual time."""

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
def test_fixed_timeout_holds_for_what_is_left(age_s, hold_s):
    """FixedTimeout holds until the oldest row has its age, whatever it learns."""
    rule = FixedTimeout(timeout_s=0.5)
    rule.arrived(1, 999.0)
    rule.finished(1, 999.5)
    assert rule.hold_s(1, oldest_at=1000.0, now=1000.0 + age_s) == hold_s


def test_no_timeout_means_the_adaptive_rule():
    """Where no timeout is set the rule is Adaptive."""
    settings = Settings(batch_timeout_micros=None)
    assert isinstance(release_for(settings, BatchTimes().expected_s), Adaptive)


@pytest.mark.parametrize(
    ("micros", "hold_s"), [(250_000, 0.25), (0, 0.0)], ids=["250 ms", "zero"]
)
def test_a_timeout_in_microseconds_means_the_fixed_rule(micros, hold_s):
    """A timeout of some microseconds, zero too, makes a FixedTimeout of seconds."""
    rule = release_for(Settings(batch_timeout_micros=micros), BatchTimes().expected_s)
    assert isinstance(rule, FixedTimeout)
    assert rule.hold_s(1, oldest_at=1000.0, now=1000.0) == hold_s


@pytest.mark.parametrize("rows", [1, 64], ids=["one row", "many rows"])
def test_adaptive_starts_at_once_as_long_as_it_knows_nothing(rows):
    """Without a batch before it a batch starts at once, whatever waits."""
    assert (
        Adaptive(BatchTimes().expected_s).hold_s(rows, oldest_at=1000.0, now=1000.0)
        == 0
    )


def _learnt(batches=20):
    """A rule whose 8 clients always come back, one each millisecond; the time now."""
    times, now = BatchTimes(), 1000.0
    rule = Adaptive(times.expected_s)
    for _ in range(batches):
        times.add(8, 0.3)
        rule.finished(8, now)
        for n in range(8):
            rule.arrived(1, now + 0.001 * (n + 1))
        now += 0.3
    rule.finished(8, now)
    return rule, now


def test_those_who_always_come_back_are_waited_for():
    """With two of eight back a batch holds for the others, and with all it starts."""
    rule, now = _learnt()
    for n in range(8):
        now += 0.001
        rule.arrived(1, now)
        hold_s = rule.hold_s(n + 1, now, now)
        assert (hold_s > 0) == (n < 7)
        assert hold_s < 0.02


def test_a_hold_in_vain_is_not_repeated_at_once():
    """After those who were waited for stayed away, four batches start at once."""
    rule, now = _learnt()
    rule.arrived(1, now + 0.001)
    assert rule.hold_s(1, now, now + 0.001) > 0
    assert rule.hold_s(1, now, now + 0.1) <= 0
    held = []
    for _ in range(6):
        now += 0.3
        rule.finished(8, now)
        for n in range(7):
            rule.arrived(1, now + 0.001 * (n + 1))
        held.append(rule.hold_s(7, now, now + 0.007) > 0)
        rule.arrived(1, now + 0.008)
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
def test_one_rule_is_good_with_and_without_think_time(clients, thinking, most_s):
    """A model of 300 ms answers within these means, with nothing tuned."""
    waits = _waits(Adaptive, clients, "300 ms", thinking, 6000)
    assert waits.mean_s <= most_s


def test_large_bodies_share_a_batch_too():
    """Clients who take half of a batch's time to come back are gathered, too."""
    load = (32, "47 ms and half a ms a row", "none, 0.7 ms apart", 3000)
    assert _waits(Adaptive, *load).mean_s <= 0.9 * _waits(_at_once, *load).mean_s


def test_one_who_thinks_does_not_part_the_others():
    """Beside a client who thinks for a while the others still share their batches."""
    thinking = "200 ms for one, none for the others"
    load = (33, "47 ms and half a ms a row", thinking, 3000)
    assert _waits(Adaptive, *load).mean_s <= 0.8 * _waits(_at_once, *load).mean_s


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("thinking", THINKING)
def test_it_never_costs_much(batch, thinking):
    """On no load is p95 more than 10 % above starting at once, nor the mean 10 %."""
    for clients in (2, 5, 20, 64):
        least = _waits(_at_once, clients, batch, thinking, 1500)
        waits = _waits(Adaptive, clients, batch, thinking, 1500)
        assert waits.p95_s <= 1.1 * least.p95_s, clients
        assert waits.mean_s <= 1.1 * least.mean_s, clients
