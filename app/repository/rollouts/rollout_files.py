"""The rollouts under way, which all processes of a server read."""

import logging
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from app.run_dir.json_files import JsonFiles
from app.run_dir.notes import Notes

_log = logging.getLogger(__name__)
_KEY_BYTES = 8


class Begun(NamedTuple):
    """A rollout: the new version with a digest of its files, and when it began.

    `since_s` is on the monotonic clock, which is one for all processes of a machine and
    is never set. `key` names its evidence.
    """

    candidate: int
    content: str
    since_s: float
    key: str


class RolloutFiles:
    """The rollout of each model; without a folder they are this process's alone.

    They end with the server. What a restart needs is in the model's Record.
    """

    def __init__(self, folder: Path | None) -> None:
        """Store the folder; None: keep them in memory."""
        self._files = JsonFiles(folder)
        # The keys of rollouts, by the processes that hold their models.
        self._holders = Notes(None if folder is None else folder / "holders")
        self._joined: set[str] = set()

    def of(self, name: str, candidate: int, content: str) -> Begun | None:
        """Return a model's rollout if it is one of this version.

        Raises:
            OSError: the file can't be read.
        """
        begun = self.current(name)
        if begun is None or (begun.candidate, begun.content) != (candidate, content):
            return None
        return begun

    def current(self, name: str) -> Begun | None:
        """Return a model's rollout, of whichever version.

        Raises:
            OSError: the file can't be read.
        """
        value = self._files.get(name)
        return None if value is None else Begun(*value)

    def begin(self, name: str, candidate: int, content: str, now: float) -> None:
        """Begin a rollout.

        Raises:
            OSError: the file can't be written.
        """
        key = os.urandom(_KEY_BYTES).hex()
        with self.changing(name):
            self._files.set(name, Begun(candidate, content, now, key))

    def end(self, name: str) -> None:
        """End a model's rollout; call it while `changing` its files.

        Raises:
            OSError: the file can't be written.
        """
        begun = self.current(name)
        self._files.set(name, None)
        if begun is not None:
            self._holders.discard(begun.key)

    def join(self, begun: Begun) -> None:
        """Note that this process holds the models of a rollout, until it leaves.

        Without space for the note, a crash of this process is not counted.
        """
        if begun.key in self._joined:
            return
        self._joined.add(begun.key)
        try:
            self._holders.add(begun.key)
        except OSError as error:
            _log.warning("crashes in a rollout are not counted: %s", error.strerror)

    def leave(self) -> None:
        """Note that this process ends as it should.

        Raises:
            OSError: a note can't be removed.
        """
        self._holders.remove_process(os.getpid())

    def crashes(self, begun: Begun) -> int:
        """Return how many processes ended during a rollout without leaving it."""
        return sum(
            note.key == begun.key and note.is_of_dead_process()
            for note in self._holders.all()
        )

    def changing(self, name: str) -> AbstractContextManager[None]:
        """Keep all other processes and threads from changing a model's rollout."""
        return self._files.locked(name)

    def proving(self, name: str) -> AbstractContextManager[None]:
        """Keep all other processes and threads from proving a model's version."""
        return self._files.locked(f"{name}/proof")
