"""What every benchmark writes: a header, Markdown tables, a folder, progress lines."""

import argparse
import datetime
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from testing.server import ROOT

# 128 plus the number of SIGINT, as shells have it.
STOPPED = 130
_MINUTE_S = 60
_LONGEST = 300
# Raised by a server or an engine that cannot be measured; the others can be.
PROBLEMS = (AssertionError, OSError, subprocess.SubprocessError)


def today() -> str:
    """Return the date in UTC as ISO 8601."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def header(command: Sequence[str], machine: Mapping[str, str]) -> str:
    """Return the line that says by which command, when and where figures were made."""
    words = ", ".join(f"{name}: {value}" for name, value in machine.items())
    return f"`{command_line(command)}` on {today()}; {words}."


def command_line(command: Sequence[str]) -> str:
    """Return `python -m MODULE ...` as one would type it."""
    return shlex.join(["python", "-m", *command])


def table(heading: Sequence[str], body: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (heading, *body)]
    return [lines[0], "|" + "---|" * len(heading), *lines[1:]]


def new_folder(wanted: Path | None) -> Path:
    """Make the report's folder: `wanted`, or reports/<date>, with a number if taken.

    Raises:
        FileExistsError: `wanted` exists already and is not empty.
    """
    first = wanted or ROOT / "reports" / today()
    folder, number = first, 1
    while wanted is None and folder.exists():
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} has a report already")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def interrupt_on_signals() -> None:
    """Raise KeyboardInterrupt at the first SIGINT, SIGTERM or SIGHUP.

    Later ones are ignored, so that servers are stopped and the report is written.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupt)


def positive(text: str) -> float:
    """Parse a number above 0 for argparse.

    Raises:
        ValueError: not a number.
        argparse.ArgumentTypeError: not above 0, or not finite.
    """
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def one_line(error: BaseException) -> str:
    """Return the cause of one of PROBLEMS in one line."""
    if isinstance(error, subprocess.CalledProcessError):
        cause = _cause(f"{error.stdout}\n{error.stderr or ''}")
        return f"{os.path.basename(error.cmd[0])} failed: {cause}"
    if isinstance(error, AssertionError):
        # The text is "what happened: the whole log".
        what, _, log = str(error).partition(": ")
        return f"{what}: {_cause(log)}"[:_LONGEST]
    return _cause(str(error) or type(error).__name__)[:_LONGEST]


def _cause(output: str) -> str:
    """Return a program's last line with an exception, or with an error, or its last."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    exceptions = [line for line in lines if "Error: " in line]
    errors = [line for line in lines if "error" in line.lower()]
    return (exceptions or errors or lines or ["no output"])[-1]


def about(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 2 * _MINUTE_S:
        return f"about {max(seconds, 0):.0f} s"
    return f"about {seconds / _MINUTE_S:.0f} min"


class Progress:
    """Writes a line when a measurement begins and when it ends."""

    def __init__(self, cells: int, stream: TextIO = sys.stdout) -> None:
        self._cells = cells
        self._stream = stream
        self._place = 0

    def say(self, text: str) -> None:
        """Write a line."""
        print(text, file=self._stream, flush=True)

    def begin(self, name: str, seconds: float) -> None:
        """Say which measurement comes next, and how long it takes."""
        self.say(f"{self._where(name)}: measuring, {about(seconds)}")

    def end(self, name: str, outcome: object) -> None:
        """Say what came of a measurement."""
        self.say(f"{self._where(name)}: {outcome}")
        self._place += 1

    def _where(self, name: str) -> str:
        width = len(str(self._cells))
        return f"[{self._place + 1:{width}}/{self._cells}] {name}"
