"""What `make loadtest` says while it works: where it is, and what is left."""

import sys
import time
from typing import TextIO

_MINUTE_S = 60


class Progress:
    """Lines on a stream; on a terminal the last one follows the clock."""

    def __init__(self, cells: int, stream: TextIO = sys.stdout) -> None:
        self._cells = cells
        self._stream = stream
        self._place = 0
        self._name = ""
        self._left_s = 0.0
        self._began_at = time.monotonic()

    def say(self, text: str) -> None:
        """Write a line."""
        self._write(text, end="\n")

    def skip(self, name: str) -> None:
        """Name the next cell, which is not measured."""
        self._place += 1
        self._name = name

    def begin(self, name: str, left_s: float) -> None:
        """Name the next cell; `left_s` is how many seconds are left as it begins."""
        self.skip(name)
        self._left_s = left_s
        self._began_at = time.monotonic()
        if not self._stream.isatty():
            self.say(f"{self._where()}: measuring, {about(left_s)} left")

    def tick(self) -> None:
        """Follow the clock, where a line can be written over."""
        if self._stream.isatty():
            passed_s = time.monotonic() - self._began_at
            left = about(self._left_s - passed_s)
            self._write(f"{self._where()}: {passed_s:.0f} s, {left} left", end="")

    def end(self, outcome: str, left_s: float) -> None:
        """Say what came out of the cell."""
        self.say(f"{self._where()}: {outcome}, {about(left_s)} left")

    def _where(self) -> str:
        width = len(str(self._cells))
        return f"[{self._place:{width}}/{self._cells}] {self._name}"

    def _write(self, text: str, end: str) -> None:
        over = "\r\x1b[K" if self._stream.isatty() else ""
        print(f"{over}{text}", end=end, file=self._stream, flush=True)


def about(seconds: float) -> str:
    """A time in words."""
    if seconds < 2 * _MINUTE_S:
        return f"about {max(seconds, 0):.0f} s"
    return f"about {seconds / _MINUTE_S:.0f} min"
