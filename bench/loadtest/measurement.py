"""What was measured: one Cell for each set-up and number of users."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Sample(NamedTuple):
    """One answered request of a cell.

    `at_s` is when the answer came, in seconds since the measurement began, after
    the warm-up; `response_s` how long it took; `status` the HTTP status, 0 where no
    answer came; `batch_rows` the answer's X-Batch-Size, 0 where it had none.
    """

    at_s: float
    response_s: float
    status: int
    batch_rows: int


@dataclass(frozen=True)
class Setup:
    """One way to run the server: `name` is what the report calls it."""

    name: str
    arguments: tuple[str, ...]
    settings: dict[str, str]


@dataclass
class Cell:
    """One set-up under one load.

    `think_s` is the range of the uniform think time in seconds, (0, 0) without.
    `measured_s` is the length of the measurement. `problem` says what went wrong,
    None where nothing did; a cell with a problem may still have samples.
    """

    setup: str
    users: int
    think_s: tuple[float, float]
    measured_s: float
    samples: list[Sample] = field(default_factory=list)
    problem: str | None = None


@dataclass
class Campaign:
    """All cells of one `make loadtest`, and what they were measured on.

    `command` is what made it, `model` the default model's name, `simulated` whether
    its device is; `machine` maps words such as "cores" and "memory" to what was
    found; `date` is ISO 8601. `stopped` is true when the run was ended by hand.
    """

    command: str
    model: str
    simulated: bool
    date: str
    machine: dict[str, str]
    cells: list[Cell] = field(default_factory=list)
    stopped: bool = False
