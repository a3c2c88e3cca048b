"""The measurements of one run: cells, progress, interruption, exit status."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from bench.figures import Cell, Clients, Seen, Timing
from bench.load import Target
from bench.report import PROBLEMS, STOPPED, Progress, interrupt_on_signals, one_line

Drive = Callable[[Target, Clients, Timing], Seen]


@dataclass
class Campaign:
    """All cells of one run; `header` is its command, date and machine.

    `stopped`: the run was interrupted.
    """

    header: str
    progress: Progress
    cells: list[Cell] = field(default_factory=list)
    stopped: bool = False

    @contextlib.contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """Run the block until a signal, after which the cells so far are kept."""
        interrupt_on_signals()
        try:
            yield
        except KeyboardInterrupt:
            self.stopped = True

    def measure(
        self,
        server: AbstractContextManager[Target],
        cells: Sequence[Cell],
        timing: Callable[[Cell], Timing],
        drive: Drive,
    ) -> str | None:
        """Start a server and measure its cells, which are kept.

        Return what prevented it, which is also the problem of the remaining cells.
        """
        left = list(cells)
        try:
            with server as target:
                while left:
                    seconds = timing(left[0])
                    self.progress.begin(left[0].title, sum(seconds))
                    seen = drive(target, left[0].clients, seconds)
                    self._keep(replace(left.pop(0), seen=seen))
        except PROBLEMS as error:
            problem = one_line(error)
            self.give_up(left, problem)
            return problem
        return None

    def give_up(self, cells: Sequence[Cell], problem: str) -> None:
        """Keep cells that cannot be measured."""
        for cell in cells:
            self._keep(replace(cell, problem=problem))

    def _keep(self, cell: Cell) -> None:
        self.cells.append(cell)
        self.progress.end(cell.title, cell.problem or cell.seen)

    def status(self) -> int:
        """Return the exit status: 0 if all was measured and every answer right."""
        if self.stopped:
            return STOPPED
        return 0 if self.cells and all(cell.sound for cell in self.cells) else 1
