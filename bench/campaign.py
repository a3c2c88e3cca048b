"""The measurements of one run: cells, progress, interruption, exit status."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from bench.figures import Cell, Clients, Seen, Timing
from bench.load import Target

Drive = Callable[[Target, Clients, Timing], Seen]
# 128 plus the number of SIGINT, as shells have it.
_STOPPED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONGEST = 300
# Raised by a server or an engine that cannot be measured; the others can be.
_PROBLEMS = (AssertionError, OSError, subprocess.SubprocessError)


@dataclass
class Campaign:
    """All cells of one run; `header` is its command, date and machine.

    `total` cells are planned. `stopped`: the run was interrupted.
    """

    header: str
    total: int
    cells: list[Cell] = field(default_factory=list)
    stopped: bool = False

    @contextlib.contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """Run the block until a signal, after which the cells so far are kept."""
        for number in _SIGNALS:
            signal.signal(number, _interrupt)
        try:
            yield
        except KeyboardInterrupt:
            self.stopped = True

    def measure(
        self,
        serve: Callable[[], AbstractContextManager[Target]],
        cells: Sequence[Cell],
        timing: Callable[[Cell], Timing],
        drive: Drive,
    ) -> str | None:
        """Start a server and measure its cells, which are kept.

        Return what prevented it, which is also the problem of the remaining cells.
        """
        left = list(cells)
        try:
            with serve() as target:
                while left:
                    seconds = timing(left[0])
                    self._say(left[0], f"measuring, about {sum(seconds):.0f} s")
                    seen = drive(target, left[0].clients, seconds)
                    self._keep(replace(left.pop(0), seen=seen))
        except _PROBLEMS as error:
            problem = _one_line(error)
            self.give_up(left, problem)
            return problem
        return None

    def give_up(self, cells: Sequence[Cell], problem: str) -> None:
        """Keep cells that cannot be measured."""
        for cell in cells:
            self._keep(replace(cell, problem=problem))

    def _keep(self, cell: Cell) -> None:
        self._say(cell, cell.problem or cell.seen)
        self.cells.append(cell)

    def _say(self, cell: Cell, what: object) -> None:
        print(f"[{len(self.cells) + 1}/{self.total}] {cell.title}: {what}", flush=True)

    def status(self) -> int:
        """Return the exit status: 0 if all was measured and every answer right."""
        if self.stopped:
            return _STOPPED
        return 0 if self.cells and all(cell.sound for cell in self.cells) else 1


def _interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt at the first signal.

    Later ones are ignored, so that servers are stopped and the report is written.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _one_line(error: BaseException) -> str:
    """Return the cause of one of _PROBLEMS in one line."""
    # The text of an AssertionError is "what happened: the whole log".
    what, _, log = str(error).partition(": ")
    if isinstance(error, subprocess.CalledProcessError):
        what = f"{os.path.basename(error.cmd[0])} failed"
        log = f"{error.stdout}\n{error.stderr or ''}"
    elif not isinstance(error, AssertionError):
        return str(error)[:_LONGEST] or type(error).__name__
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    # The last line that says what was wrong, else the last one.
    causes = [line for line in lines if "error" in line.lower()] or lines or ["no log"]
    return f"{what}: {causes[-1]}"[:_LONGEST]
