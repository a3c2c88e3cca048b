"""The set-ups under test, and how long each is measured."""

from dataclasses import dataclass, field

from bench.figures import Timing
from testing.server import workers_in

# Any number does: a request that waits for its batch occupies no thread.
_THREADS = "--threads=68"


@dataclass(frozen=True)
class Setup:
    """Gunicorn's arguments and BASKET_ settings, under the name that reports show."""

    name: str
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


_UNBATCHED = {"batching": "off"}
# The article starts a batch when it has a row of each user, of whom there are at most
# 64 here, or when the oldest row is 500 ms old.
_FIXED = {"batch_timeout_micros": "500000", "max_batch_size": "64"}
AUTO = Setup("batching, auto", (_THREADS,))
NAIVE = Setup("naive", (), _UNBATCHED)
SETUPS = {
    setup.name: setup
    for setup in (
        NAIVE,
        Setup("5 workers", ("--workers=5",), _UNBATCHED),
        Setup("batching, 500 ms", (_THREADS,), _FIXED),
        AUTO,
        Setup("batching, auto x 2 workers", (_THREADS, "--workers=2")),
    )
}
USERS = (1, 5, 20, 64)
QUICK_USERS = (1, 5, 20)
# Seconds by users for AUTO on simulated devices, which is compared with theory: the
# mean is then known to about 0.01 s.
_LONG_S = {1: 60.0, 5: 90.0, 20: 60.0}


def timing_of(
    setup: Setup, users: int, *, row_s: float, simulated: bool, quick: bool
) -> Timing:
    """Return how long to warm up and to measure `users` users.

    `row_s` is the time of one row alone. Without batching users wait for each other at
    a device: simulated workers have one each, real ones share the machine's.
    """
    devices = workers_in(setup.arguments) if simulated else 1
    # In a cycle each user is served once.
    one_by_one = setup.settings.get("batching") == "off"
    cycle_s = row_s * users / devices if one_by_one else 2 * row_s
    if quick:
        return Timing(max(3, 1.5 * cycle_s), max(5.5, 2 * cycle_s))
    long = simulated and setup.name == AUTO.name
    least_s = _LONG_S.get(users, 25) if long else 25
    return Timing(max(5, 2 * cycle_s), max(least_s, 3 * cycle_s))
