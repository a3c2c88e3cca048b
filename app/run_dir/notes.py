"""Notes: keys that a process shows to the other processes of its server.

A note is an empty file <key>.<process id>. So notes are created and removed atomically,
without a lock, and there is no content that could be read half written.
"""

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple


def is_alive(pid: int) -> bool:
    """Return whether a process has this id now; ids are reused."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        pass
    return True


class Note(NamedTuple):
    """One key of one process."""

    key: str
    pid: int

    def file_name(self) -> str:
        """Return <key>.<process id>; a key may contain dots."""
        return f"{self.key}.{self.pid}"

    def is_of_dead_process(self) -> bool:
        """Return whether the process that left the note has ended."""
        return not is_alive(self.pid)


class Notes:
    """The notes on one topic; without a folder they are this process's alone."""

    def __init__(self, folder: Path | None = None) -> None:
        """Store the folder, which `add` creates; None: keep notes in memory."""
        self._folder = folder
        self._in_memory: set[Note] = set()

    def add(self, key: str) -> None:
        """Leave a note of this process; the key is part of a file's name.

        Raises:
            OSError: the file can't be created.
        """
        note = Note(key, os.getpid())
        if self._folder is None:
            self._in_memory.add(note)
        else:
            self._folder.mkdir(exist_ok=True)
            (self._folder / note.file_name()).touch()

    def all(self) -> list[Note]:
        """Return the notes of all processes, also of dead ones."""
        if self._folder is None:
            return list(self._in_memory)
        names = [file.name.rpartition(".") for file in self._folder.glob("*.*")]
        return [Note(key, int(pid)) for key, _, pid in names]

    def remove(self, notes: Iterable[Note]) -> None:
        """Remove these notes; any of them may be missing.

        Raises:
            OSError: a file can't be removed.
        """
        for note in notes:
            if self._folder is None:
                self._in_memory.discard(note)
            else:
                (self._folder / note.file_name()).unlink(missing_ok=True)

    def remove_process(self, pid: int, except_keys: Collection[str] = ()) -> None:
        """Remove all notes of one process, except those with these keys."""
        self.remove(
            note
            for note in self.all()
            if note.pid == pid and note.key not in except_keys
        )

    def discard(self, key: str) -> None:
        """Remove the notes of all processes with this key."""
        self.remove(note for note in self.all() if note.key == key)

    def __contains__(self, key: str) -> bool:
        """Return whether any process has left a note with this key."""
        return any(note.key == key for note in self.all())
