"""The memory of large calls: a bound on all together, and its return to the system."""

import asyncio
import threading

from app.call import Call
from app.errors import Unavailable
from app.memory import give_back

# Bodies up to this size are not counted: the number of connections bounds them.
SMALL_BODY_BYTES = 64 << 10
# Bodies of the largest size whose memory all large calls may take together.
_LARGEST_BODIES = 16
# A call of so many bytes is worth the milliseconds of returning memory to the system,
# once for all that end within a second. Otherwise the heap keeps its peak.
_TRIMMED_BYTES = 4 << 20
_TRIM_AFTER_S = 1.0


class LargeCalls:
    """Counts the bytes of the large calls of one event loop."""

    def __init__(self, max_body_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
        """Store the loop; `max_body_bytes` is the size of the largest body."""
        self._loop = loop
        self._max_bytes = _LARGEST_BODIES * max_body_bytes
        self._bytes = 0
        self._counting = threading.Lock()
        self._trimming = False

    def hold(self, call: Call, count: int) -> None:
        """Count the bytes that a call takes now; any thread may call it.

        Raises:
            Unavailable: large calls would exceed their memory.
        """
        if count <= SMALL_BODY_BYTES:
            count = 0
        with self._counting:
            # Code of the user's may return after the call's end.
            if call.status or count == call.held_bytes:
                return
            total = self._bytes + count - call.held_bytes
            if count > call.held_bytes and total > self._max_bytes:
                raise Unavailable(
                    f"large bodies in memory may have {self._max_bytes} bytes in all"
                )
            self._bytes, call.held_bytes = total, count
            call.most_held_bytes = max(call.most_held_bytes, count)

    def release(self, call: Call) -> None:
        """Count an ended call no more; called on the event loop."""
        with self._counting:
            self._bytes -= call.held_bytes
            call.held_bytes = 0
        if call.most_held_bytes >= _TRIMMED_BYTES and not self._trimming:
            self._trimming = True
            self._loop.call_later(_TRIM_AFTER_S, self._trim)

    def _trim(self) -> None:
        self._trimming = False
        self._loop.run_in_executor(None, give_back)
