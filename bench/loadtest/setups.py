"""The set-ups under test, and how long each is measured."""

from typing import NamedTuple

from bench.loadtest.measurement import Setup

# What makes requests share batches. Any number does: who waits holds no thread.
_THREADS = "--threads=68"

SETUPS = (
    Setup("naive", (), {"batching": "off"}),
    Setup("5 workers", ("--workers=5",), {"batching": "off"}),
    # The article starts a batch when it has as many rows as there are users, or when
    # the oldest is 500 ms old: the most users here are 64.
    Setup(
        "batching, 500 ms",
        (_THREADS,),
        {"batch_timeout_micros": "500000", "max_batch_size": "64"},
    ),
    Setup("batching, auto", (_THREADS,), {}),
    Setup("batching, auto x 2 workers", (_THREADS, "--workers=2"), {}),
)
USERS = (1, 5, 20, 64)
QUICK_USERS = (1, 5, 20)


class Timing(NamedTuple):
    """Seconds of a cell: the warm-up, which is not counted, and the measurement."""

    warm_up_s: float
    measured_s: float


class _Rule(NamedTuple):
    """Least seconds, and least cycles in which each user is served once."""

    warm_up_s: float
    warm_up_cycles: float
    measured_s: float
    measured_cycles: float


_FULL = _Rule(5, 2, 25, 3)
_QUICK = _Rule(3, 1.5, 5.5, 2)
# Seconds by users where `batching, auto` is held against theory: with these the mean
# is known to about 0.01 s.
_CLOSELY = {1: 60.0, 5: 90.0, 20: 60.0}


def timing_of(
    setup: Setup, users: int, *, row_s: float, devices: int, quick: bool
) -> Timing:
    """How long to warm up and to measure `users` users.

    `row_s` is how long one row alone takes, `devices` how many the set-up's
    processes have: without batching the users wait for each other there.
    """
    rule = _QUICK if quick else _FULL
    one_by_one = setup.settings.get("batching") == "off"
    cycle_s = row_s * users / devices if one_by_one else 2 * row_s
    least_s = rule.measured_s
    if setup.name == "batching, auto" and not quick:
        least_s = _CLOSELY.get(users, least_s)
    return Timing(
        max(rule.warm_up_s, rule.warm_up_cycles * cycle_s),
        max(least_s, rule.measured_cycles * cycle_s),
    )
