"""The last error responses to inference requests, of all processes of a server."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from operator import itemgetter
from typing import Any

from app.api.exchange import Exchange, HttpResponse
from app.api.page.ring import Ring
from app.codec import json_text

KEPT = 50
# Of each process between two flushes.
_MOST_AT_ONCE = 5
_LONGEST_TEXT = 500


class ErrorLog:
    """Keeps time, model, status and text of error responses, and no bodies.

    Other processes see an error once it is flushed.
    """

    def __init__(self, ring: Ring, clock: Callable[[], float] = time.time) -> None:
        """Store where lines go, and the clock in seconds since 1970."""
        self._ring = ring
        self._clock = clock
        self._recent: deque[tuple[float, str | None, HttpResponse]] = deque(
            maxlen=_MOST_AT_ONCE
        )

    def add(self, exchange: Exchange, response: HttpResponse) -> None:
        """Note an error; only the newest few are kept until the next flush.

        A 401 is not noted, as a stranger could fill the log with them.
        """
        if response.status != HTTPStatus.UNAUTHORIZED:
            model = exchange.model.name if exchange.model else None
            self._recent.append((self._clock(), model, response))

    def flush(self) -> None:
        """Write noted errors where all processes see them.

        Raises:
            OSError: they can't be written.
        """
        errors = []
        # Other threads may add or flush at the same time.
        with suppress(IndexError):
            while True:
                errors.append(_described(*self._recent.popleft()))
        self._ring.append(errors)

    def newest(self) -> list[dict[str, Any]]:
        """Return the last errors of all processes, the newest first.

        Raises:
            OSError: they can't be read.
        """
        self.flush()
        return sorted(self._ring.newest_first(), key=itemgetter("t"), reverse=True)


def _described(at: float, model: str | None, response: HttpResponse) -> dict[str, Any]:
    text = json_text.loads(response.body)["error"][:_LONGEST_TEXT]
    return {"t": at, "model": model, "status": response.status, "text": text}
