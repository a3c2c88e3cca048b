"""The request log: a line of JSON for each request, or for a sample of them."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

import numpy as np
import orjson

from app.background import Background, BackgroundLimits

STDOUT = "-"
_BOUNDS = BackgroundLimits(0.5, 1024, 1 << 30, 8192, 1 << 31)
# Lines that are written at once: to a pipe, so many bytes never mix with those of other
# processes.
_WRITE_BYTES = 4096
_log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A finished request; `version`, `rows` and `stages_s` as far as it came."""

    answered_at: float
    request_id: str
    client: str
    model: str | None
    version: int | None
    status: int
    rows: int | None
    seconds: float
    stages_s: Mapping[str, float] | None


class RequestLog:
    """Appends entries to a file, or writes them to stdout.

    A file that was moved or removed is created again, without a signal.
    """

    def __init__(
        self,
        path: str,
        dropped: Callable[[int], None],
        bounds: BackgroundLimits = _BOUNDS,
    ) -> None:
        """Store the path, or "-"; `dropped` gets the number of lost entries."""
        self._path = path
        self._dropped = dropped
        self._file: int | None = None
        # Whether it ends in a part of a line, as after a full disk.
        self._is_cut_off = False
        self._problem = ""
        self._background = Background("request log", self._write, bounds)

    def add(self, entry: Entry) -> None:
        """Have an entry written, or drop it; any thread may call this."""
        if not self._background.offer(entry):
            self._dropped(1)

    def close(self, timeout_s: float) -> None:
        """Write all entries, and drop those that come later."""
        self._background.close(timeout_s)

    def _write(self, entries: list[Entry]) -> None:
        written, problem = 0, ""
        try:
            file = self._opened()
            for lines in _chunks(_lines(entries)):
                start = b"\n" if self._is_cut_off else b""
                for part in _written(file, start + lines):
                    written += part.count(b"\n") - len(start)
                    start, self._is_cut_off = b"", not part.endswith(b"\n")
        except Exception as error:  # must not end the thread
            problem = getattr(error, "strerror", None) or repr(error)
        if written < len(entries):
            self._dropped(len(entries) - written)
        if problem and problem != self._problem:
            _log.error("BASKET_REQUEST_LOG=%s: %s", self._path, problem)
        self._problem = problem

    def _opened(self) -> int:
        """Return the file, opened again if its path leads to another one now."""
        if self._path == STDOUT:
            return 1
        if self._file is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._path), os.fstat(self._file)):
                    return self._file
            os.close(self._file)
            self._file = None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._is_cut_off = False
        return self._file


def _lines(entries: Sequence[Entry]) -> bytes:
    """Return each entry as JSON, with a line feed.

    Arrays of times are made text and rounded in a tenth of the time of single ones.
    """
    answered_ms = np.array([1000 * each.answered_at for each in entries])
    times = answered_ms.astype("datetime64[ms]")
    seconds = [[each.seconds, *(each.stages_s or {}).values()] for each in entries]
    ms = iter(np.round(1000 * np.array([*chain(*seconds)]), 3).tolist())
    values = [
        {
            "time": time,
            "request_id": each.request_id,
            "client": each.client,
            "model": each.model,
            "version": each.version,
            "status": each.status,
            "rows": each.rows,
            "ms": next(ms),
            **{f"{stage}_ms": next(ms) for stage in each.stages_s or ()},
        }
        for time, each in zip(
            np.datetime_as_string(times, timezone="UTC").tolist(), entries, strict=True
        )
    ]
    # No text in JSON contains its delimiter, as JSON escapes its quotation marks.
    text = orjson.dumps(values)[1:-1].replace(b'},{"time":', b'}\n{"time":')
    return text + b"\n"


def _chunks(lines: bytes) -> Iterator[bytes]:
    """Yield lines that are written at once."""
    start = 0
    while start < len(lines):
        end = lines.rfind(b"\n", start, start + _WRITE_BYTES) + 1
        end = end or lines.index(b"\n", start) + 1
        yield lines[start:end]
        start = end


def _written(file: int, content: bytes) -> Iterator[bytes]:
    """Write all of it, and yield the parts that were written."""
    while content:
        count = os.write(file, content)
        yield content[:count]
        content = content[count:]
