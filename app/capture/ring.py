"""The files of one model's captured requests, of which the oldest make room.

All processes of a server write into one folder, one at a time. A block's name is a
number that counts up, as clocks may be set back. It is written under another name, and
renamed once it is whole. A number that is missing between two others is that of a block
whose process was killed while it wrote.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.file_stem import file_stem

BLOCK_NAME = re.compile(r"([0-9]{12})\.npz").fullmatch
PARTIAL_NAME = re.compile(r"([0-9]{12})\.partial").fullmatch
# Holds the number of the next block; the process that writes has locked it.
NEXT = ".next"
_DIGITS = 12
# A file takes whole ones of these.
_DISK_BLOCK_BYTES = 4096
_OWNER_ONLY = 0o600
# A number that is further ahead of the last block is damaged.
_MOST_AHEAD = 100_000


def folder_of(root: Path, model: str) -> Path:
    """Return the folder of a model's blocks."""
    return root / file_stem(model)


class Ring:
    """Writes the blocks of one model; used by one thread."""

    def __init__(self, folder: Path) -> None:
        """Store the folder, which `add` creates."""
        self._folder = folder
        # Bytes on disk by number, oldest first, of the blocks that this process knows.
        # Other processes may have removed some of them.
        self._sizes: dict[int, int] = {}

    def add(self, content: bytes, keep_bytes: int) -> None:
        """Write a block, after removing the oldest ones beyond `keep_bytes` in all.

        Raises:
            OSError: it can't be written, or is larger than `keep_bytes`.
        """
        size = _on_disk(len(content))
        if size > keep_bytes:
            raise OSError(errno.EFBIG, "a block is larger than keep_mb")
        for folder in (self._folder.parent, self._folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        with self._locked() as lock:
            number = self._next_number(lock)
            self._make_room(keep_bytes - size)
            self._write(number, content)
            self._sizes[number] = size
            # Else the next writer finds the block.
            with suppress(OSError):
                os.pwrite(lock, b"%0*d" % (_DIGITS, number + 1), 0)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        lock = os.open(self._folder / NEXT, flags, _OWNER_ONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def _next_number(self, lock: int) -> int:
        """Return the number of the next block, after noting those of other processes.

        The number in the file may be behind, or damaged, or gone with the whole folder.
        """
        text = os.pread(lock, _DIGITS, 0)
        number = int(text) if text.isdigit() else 0
        known = max(self._sizes, default=0)
        if not known < number <= known + _MOST_AHEAD or not known:
            after_last = self._scan()
            is_damaged = self._sizes and number > after_last + _MOST_AHEAD
            number = after_last if is_damaged else max(number, after_last)
        else:
            for other in range(known + 1, number):
                self._note(other)
        while self._note(number) or self._partial(number).exists():
            # No other process writes now: it was killed while it wrote.
            self._partial(number).unlink(missing_ok=True)
            number += 1
        return number

    def _scan(self) -> int:
        """Note all blocks, and return the number behind the last one."""
        names = sorted(os.listdir(self._folder))
        self._sizes = {}
        for found in filter(None, map(BLOCK_NAME, names)):
            self._note(int(found[1]))
        last = max(self._sizes, default=0)
        for found in filter(None, map(PARTIAL_NAME, names)):
            last = max(last, int(found[1]))
            (self._folder / found[0]).unlink(missing_ok=True)
        return last + 1

    def _note(self, number: int) -> bool:
        """Note the size of a block; return whether there is one."""
        try:
            self._sizes[number] = _on_disk(self._block(number).stat().st_size)
        except FileNotFoundError:
            return False
        return True

    def _make_room(self, keep_bytes: int) -> None:
        total = sum(self._sizes.values())
        for number in list(self._sizes):
            if total <= keep_bytes:
                break
            self._block(number).unlink(missing_ok=True)
            total -= self._sizes.pop(number)

    def _write(self, number: int, content: bytes) -> None:
        partial = self._partial(number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = os.open(partial, flags, _OWNER_ONLY)
        try:
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(file, rest) :]
            finally:
                os.close(file)
            partial.rename(self._block(number))
        except OSError:
            partial.unlink(missing_ok=True)
            raise

    def _block(self, number: int) -> Path:
        return self._folder / f"{number:0{_DIGITS}}.npz"

    def _partial(self, number: int) -> Path:
        return self._folder / f"{number:0{_DIGITS}}.partial"


def _on_disk(size: int) -> int:
    """Return how much of the disk a file of `size` bytes takes."""
    return -(-size // _DISK_BLOCK_BYTES) * _DISK_BLOCK_BYTES
