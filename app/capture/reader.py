"""Reads captured requests: a model's folder, or an exported file."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.capture.blocks import UnreadableBlock, read
from app.capture.captured import Group
from app.capture.ring import BLOCK_NAME, NEXT, PARTIAL_NAME


@dataclass(frozen=True)
class Reading:
    """What was read: groups, oldest first, and notes on what could not be read.

    `files` and `file_bytes` count the blocks that were read.
    """

    groups: Sequence[Group]
    notes: Sequence[str]
    files: int
    file_bytes: int

    def __len__(self) -> int:
        """Return the number of requests."""
        return sum(map(len, self.groups))


def read_captured(path: Path) -> Reading:
    """Return the requests in a model's folder, or in an exported file.

    A file that is removed meanwhile, to make room for new ones, is left out.

    Raises:
        OSError: there is no such folder or file, or it can't be read.
        UnreadableBlock: it is a file, and no exported one.
    """
    if not path.is_dir():
        size = path.stat().st_size
        return Reading(read(path), (), 1, size)
    groups: list[Group] = []
    notes: list[str] = []
    numbers: list[int] = []
    file_bytes = 0
    for file in sorted(path.iterdir()):
        found = BLOCK_NAME(file.name)
        if found is None:
            notes += _note_on(file)
            continue
        numbers.append(int(found[1]))
        try:
            file_bytes += file.stat().st_size
            groups += read(file)
        except FileNotFoundError:
            numbers.pop()
        except UnreadableBlock as error:
            notes.append(f"{file.name} is skipped: {error}")
    notes += _gaps(numbers)
    return Reading(groups, notes, len(numbers), file_bytes)


def _note_on(file: Path) -> Iterator[str]:
    if PARTIAL_NAME(file.name):
        yield f"{file.name} is skipped: it is being written, or its process was killed"
    elif file.name != NEXT:
        yield f"{file.name} is skipped: it has no captured requests"


def _gaps(numbers: Sequence[int]) -> Iterator[str]:
    for before, after in itertools.pairwise(numbers):
        if after > before + 1:
            yield (
                f"{after - before - 1} missing behind {before:012}.npz: a process was "
                "killed while it wrote, or a file was removed"
            )
