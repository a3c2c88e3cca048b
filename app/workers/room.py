"""Room for connections, which may run out before there are as many as are allowed.

Gunicorn's worker ends where the system can't give it one more, and all that is under
way ends with it.
"""

import errno
import math
import time

from gunicorn.glogging import Logger

_USED_UP = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Seconds after which there may be room again, though no connection has been closed:
# others have it, too.
_WAIT_S = 1.0
# Seconds from one line in the log to the next.
_SILENCE_S = 60.0


class Room:
    """What is known of it; `conns` are the connections that there are."""

    def __init__(self, log: Logger) -> None:
        """Store where to say that there is none."""
        self._log = log
        self._most = math.inf
        self._wait_until = self._silent_until = -math.inf

    def is_used_up(self, error: OSError, conns: int) -> bool:
        """Say whether it is for want of room that a connection was not accepted."""
        if error.errno not in _USED_UP:
            return False
        now = time.monotonic()
        if now >= self._silent_until:
            self._log.error("no room for more than %d connections: %s", conns, error)
            self._silent_until = now + _SILENCE_S
        self._most, self._wait_until = conns, now + _WAIT_S
        return True

    def is_there(self, conns: int) -> bool:
        """Say whether one more may be tried."""
        return conns < self._most or time.monotonic() >= self._wait_until
