"""Quarantine of versions whose load crashed its process.

A crash in native code, or a kill for lack of memory, can't be caught. The next worker
would load the same version and crash, too, with all other models in it. So each load
leaves a note while it lasts, and the note of a dead process is a crash.
"""

import atexit
import hashlib
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from app.errors import NotYetLoadable
from app.run_dir.notes import Note, Notes

# A single crash may have had another cause, such as a kill by hand.
_TOLERATED = 1
# The pause after the second crash; it doubles with each further one.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 3600.0
# Bytes of the hash that stands for a version's files in a note.
_DIGEST_BYTES = 16


class Quarantine:
    """Loads under way, as notes <name>.<version and files>.<begin in ms>.

    Begins are read on the monotonic clock, which all processes of a machine share.
    """

    def __init__(self, notes: Notes) -> None:
        """Store where the loads of all processes are noted."""
        self._notes = notes

    @contextmanager
    def loading(
        self, name: str, version: int, files: Collection[tuple[str, int, int]]
    ) -> Iterator[None]:
        """Leave a note while a version loads; `files` are name, size and time.

        Raises:
            NotYetLoadable: the version is in quarantine.
        """
        looks = repr((version, sorted(files))).encode()
        digest = hashlib.blake2b(looks, digest_size=_DIGEST_BYTES).hexdigest()
        prefix = f"{name}.{digest}."
        _check(self._crashes(prefix))
        note = Note(f"{prefix}{time.monotonic() * 1000:.0f}", os.getpid())
        # Models load even if the note can't be written.
        with suppress(OSError):
            self._notes.add(note.key)
        # A shutdown during the load is no crash.
        atexit.register(self._remove, [note])
        try:
            yield
        finally:
            atexit.unregister(self._remove)
            self._remove([note, *self._crashes(prefix)])

    def release(self, name: str) -> None:
        """Forget the crashes of all versions of a model."""
        notes = self._notes.all()
        self._remove([note for note in notes if note.key.rsplit(".", 2)[0] == name])

    def _crashes(self, prefix: str) -> list[Note]:
        return [
            note
            for note in self._notes.all()
            if note.key.startswith(prefix) and note.is_of_dead_process()
        ]

    def _remove(self, notes: Collection[Note]) -> None:
        with suppress(OSError):
            self._notes.remove(notes)


def _check(crashes: Collection[Note]) -> None:
    doublings = len(crashes) - _TOLERATED - 1
    if doublings < 0:
        return
    pause_s = min(_FIRST_PAUSE_S * 2**doublings, _LONGEST_PAUSE_S)
    last_ms = max(int(note.key.rpartition(".")[2]) for note in crashes)
    if time.monotonic() < last_ms / 1000 + pause_s:
        raise NotYetLoadable(
            f"ended its process {len(crashes)} times while it was loaded, by a "
            f"crash or for want of memory; is tried again after {pause_s:.0f} s"
        )
