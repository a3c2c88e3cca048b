"""When copies of requests may run: while no client's job does, and seldom."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from app.batching.interfaces import Runner

# Clients that come back at once leave gaps between their batches, in which no copy may
# start. So copies run after no job was seen for as long as they would take, within
# these bounds. Copies that were dropped shorten that time, as it may be wrong.
_SHORTEST_IDLE_S, _LONGEST_IDLE_S = 0.005, 1.0
_SHORTENED = 0.9
# How long copies wait for that, or for so many times as long.
_IDLE_WITHIN_S, _IDLE_WITHIN_TIMES = 0.25, 4
# Pauses between looks, which grow: under load, looks take time from clients.
_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.016
# Clients that come while copies run wait for them where both share a device. So few do
# that the 99th percentile of their latencies stays what it is: after copies comes a
# rest of so many times the time that they took. Meanwhile others gather.
_REST_TIMES = 99
# After so much time no batch begins before the next rest.
_LONGEST_RUN_S = 0.6
# Between looks during a rest, which a close ends.
_LOOK_EVERY_S = 0.05


class SpareTime:
    """The time that clients leave to copies, for the thread that runs them.

    `is_closing` ends all waits; a test replaces `clock` and `sleep`.
    """

    def __init__(
        self,
        is_closing: Callable[[], bool],
        clock: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        """Store the parts."""
        self._is_closing = is_closing
        self._clock, self._sleep = clock, sleep
        # How long copies wait without a job to be seen, by model.
        self._idle_s: dict[str, float] = {}
        # How long copies have run since the last rest.
        self._taken_s = 0.0

    def wait_for_idle(self, name: str, runners: Sequence[Runner]) -> bool:
        """Wait until a model's runners have no jobs, and return whether to run copies.

        They do not run if that takes long, or if others have run for long.
        """
        if self._taken_s >= _LONGEST_RUN_S:
            return False
        idle_s, pause_s, since = self._idle_s.get(name, 0.0), _PAUSE_S, None
        idle_s = min(max(idle_s, _SHORTEST_IDLE_S), _LONGEST_IDLE_S)
        now = self._clock()
        give_up_at = now + max(_IDLE_WITHIN_S, _IDLE_WITHIN_TIMES * idle_s)
        while now < give_up_at and not self._is_closing():
            if not all(runner.is_idle() for runner in runners):
                since = None
            elif since is None:
                since = now
            elif now - since >= idle_s:
                return True
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            now = self._clock()
        self._idle_s[name] = _SHORTENED * idle_s
        return False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Count the time that the block takes."""
        began_at = self._clock()
        try:
            yield
        finally:
            self._taken_s += self._clock() - began_at

    def expect(self, name: str, batch_s: float) -> None:
        """Set how long a model's next batch of copies will take."""
        self._idle_s[name] = batch_s

    def rest(self) -> None:
        """Wait until copies may run again."""
        until, self._taken_s = self._clock() + _REST_TIMES * self._taken_s, 0.0
        while (left_s := until - self._clock()) > 0 and not self._is_closing():
            self._sleep(min(left_s, _LOOK_EVERY_S))
