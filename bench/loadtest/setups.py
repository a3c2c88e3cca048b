"""The set-ups under test, and how long each is measured."""

from dataclasses import dataclass, field
from typing import NamedTuple

from bench.figures import Timing

# Any number does: a request that waits for its batch occupies no thread.
_THREADS = "--threads=68"


@dataclass(frozen=True)
class Setup:
    """Gunicorn's arguments and BASKET_ settings, under the name that reports show."""

    name: str
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


SETUPS = (
    Setup("naive", (), {"batching": "off"}),
    Setup("5 workers", ("--workers=5",), {"batching": "off"}),
    # The article starts a batch when it has a row of each user, of whom there are at
    # most 64 here, or when the oldest row is 500 ms old.
    Setup(
        "batching, 500 ms",
        (_THREADS,),
        {"batch_timeout_micros": "500000", "max_batch_size": "64"},
    ),
    Setup("batching, auto", (_THREADS,)),
    Setup("batching, auto x 2 workers", (_THREADS, "--workers=2")),
)
USERS = (1, 5, 20, 64)
QUICK_USERS = (1, 5, 20)


class _Rule(NamedTuple):
    """Least seconds, and least cycles; in a cycle each user is served once."""

    warm_up_s: float
    warm_up_cycles: float
    measured_s: float
    measured_cycles: float


_FULL = _Rule(5, 2, 25, 3)
_QUICK = _Rule(3, 1.5, 5.5, 2)
# Seconds by users for `batching, auto`, which is compared with theory: the mean is
# then known to about 0.01 s.
_LONG_S = {1: 60.0, 5: 90.0, 20: 60.0}


def timing_of(
    setup: Setup, users: int, *, row_s: float, devices: int, quick: bool
) -> Timing:
    """Return how long to warm up and to measure `users` users.

    `row_s` is the time of one row alone, `devices` the number of devices of the
    set-up: without batching users wait there for each other.
    """
    rule = _QUICK if quick else _FULL
    one_by_one = setup.settings.get("batching") == "off"
    cycle_s = row_s * users / devices if one_by_one else 2 * row_s
    least_s = rule.measured_s
    if setup.name == "batching, auto" and not quick:
        least_s = _LONG_S.get(users, least_s)
    return Timing(
        max(rule.warm_up_s, rule.warm_up_cycles * cycle_s),
        max(least_s, rule.measured_cycles * cycle_s),
    )
