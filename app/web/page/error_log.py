"""The last error responses to inference requests, of all processes of a server."""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http import HTTPStatus
from operator import itemgetter
from pathlib import Path
from typing import Any

from app.call import Call
from app.codec import json_text
from app.errors import BadInput
from app.web.page.ring import LineRing

KEPT = 50
# Of each process between two flushes.
_MOST_AT_ONCE = 5
_LONGEST_TEXT = 500
# Model, status and body.
_Kind = tuple[str | None, int, bytes]


class ErrorLog:
    """Keeps time, model, status, text and count of error responses, and no bodies.

    Other processes see an error once it is flushed. Responses of one process that are
    alike and come between two flushes are one error with a count.
    """

    def __init__(
        self, file: Path | None, clock: Callable[[], float] = time.time
    ) -> None:
        """Store the path, None: in memory, and the clock in seconds since 1970."""
        self._ring = LineRing(file, KEPT, _chosen_lines)
        self._clock = clock
        self._lock = threading.Lock()
        # Time of the last response, and number of responses; the newest are last.
        self._recent: dict[_Kind, tuple[float, int]] = {}

    def ended(self, calls: Sequence[Call]) -> None:
        """Note the errors of calls that have ended."""
        for call in [each for each in calls if each.error is not None]:
            self._add(call)

    def _add(self, call: Call) -> None:
        """Note an error; only a few are kept until the next flush.

        A 401 is not noted, as a stranger could fill the log with them.
        """
        if call.status == HTTPStatus.UNAUTHORIZED:
            return
        model = call.model.name if call.model else None
        kind = (model, int(call.status), call.reply.body)
        with self._lock:
            _, count = self._recent.pop(kind, (0.0, 0))
            self._recent[kind] = (self._clock(), count + 1)
            if len(self._recent) > _MOST_AT_ONCE:
                places = _chosen([each[:2] for each in self._recent], _MOST_AT_ONCE)
                kinds = list(self._recent)
                self._recent = {kinds[at]: self._recent[kinds[at]] for at in places}

    def flush(self) -> None:
        """Write noted errors where all processes see them.

        Raises:
            OSError: they can't be written.
        """
        with self._lock:
            noted, self._recent = self._recent, {}
        self._ring.append([_described(*kind, *value) for kind, value in noted.items()])

    def newest(self) -> list[dict[str, Any]]:
        """Return the last errors of all processes, the newest first.

        Raises:
            OSError: they can't be read.
        """
        self.flush()
        return sorted(self._ring.newest_first(), key=itemgetter("t"), reverse=True)


def _described(
    model: str | None, status: int, body: bytes, at: float, count: int
) -> dict[str, Any]:
    text = json_text.loads(body)["error"][:_LONGEST_TEXT]
    return {"t": at, "model": model, "status": status, "text": text, "count": count}


def _chosen(kinds: Sequence[tuple[str | None, int]], kept: int) -> list[int]:
    """Return the ascending places of the errors to keep, given oldest first.

    These are the newest of each model and status, then the second newest of each, and
    so on, so that many errors of one kind do not push out a rare one of another.
    """
    ranks: dict[tuple[str | None, int], Iterator[int]] = defaultdict(itertools.count)
    newest_first = range(len(kinds) - 1, -1, -1)
    ranked = sorted(newest_first, key=lambda place: next(ranks[kinds[place]]))
    return sorted(ranked[:kept])


def _chosen_lines(lines: Sequence[bytes], kept: int) -> list[bytes]:
    """Return those lines of a file that are kept."""
    whole, kinds = [], []
    for line in lines:
        # A process that was killed may have left a part of a line.
        with suppress(BadInput):
            error = json_text.loads(line)
            kinds.append((error["model"], error["status"]))
            whole.append(line)
    return [whole[place] for place in _chosen(kinds, kept)]
