"""What a start says about settings that can't do here what they are there for."""

from collections.abc import Iterator
from typing import NamedTuple

from app.settings import Settings

# Open files that a worker has beside its connections.
_OTHER_FILES = 50


class AtATime(NamedTuple):
    """How many requests a server has at a time for one model.

    `what` it has one of for each request, and the `option` that says how many.
    """

    number: int
    what: str
    option: str


def lines(
    settings: Settings, used_gpus: tuple[int, ...], at_a_time: AtATime
) -> Iterator[str]:
    """One line for each such setting."""
    if settings.batching_parameters_file is not None:
        # Only where it is needed: protobuf takes 7 MiB.
        from app.settings import batching_parameters  # noqa: PLC0415

        for note in batching_parameters.read(settings.batching_parameters_file).notes:
            yield f"BASKET_BATCHING_PARAMETERS_FILE: {note}"
    if not used_gpus:
        if settings.gpus is not None:
            yield "no GPU: BASKET_GPUS has no effect"
        if settings.gpu_memory_fraction is not None:
            yield "no GPU: BASKET_GPU_MEMORY_FRACTION has no effect"
    number, what, option = at_a_time
    if settings.batching and number < settings.max_batch_size:
        yield (
            f"{number} {what} can't fill a batch of {settings.max_batch_size} with "
            f"single rows: {option}={settings.max_batch_size} or more can"
        )


def open_files(connections: int) -> int:
    """How many a worker with so many connections may come to need."""
    return connections + _OTHER_FILES


def on_open_files(limit: int, connections: int) -> str:
    """A line for where each of a worker's connections can't have a descriptor."""
    return (
        f"{limit} open files are too few for --worker-connections={connections}: "
        f"ulimit -Hn {open_files(connections)} or more is enough"
    )
