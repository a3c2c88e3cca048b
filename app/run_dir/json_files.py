"""JSON values by model name that the processes of a server share."""

import fcntl
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from app.file_stem import file_stem

_log = logging.getLogger(__name__)
_FILE, _COPY = "json", "copy"


class JsonFiles:
    """A file for each model in one folder; without a folder, this process's memory."""

    def __init__(self, folder: Path | None = None) -> None:
        """Store the folder, which `set` and `locked` create."""
        self._folder = folder
        self._in_memory: dict[str, Any] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def get(self, name: str) -> Any | None:
        """Return a model's value; None: it has none.

        Raises:
            OSError: the file can't be read.
            ValueError: it is no JSON.
        """
        if self._folder is None:
            return self._in_memory.get(name)
        try:
            return json.loads(self._file(name, _FILE).read_bytes())
        except FileNotFoundError:
            return None

    def set(self, name: str, value: Any) -> None:
        """Set a model's value: a reader finds all of the old one or of the new one.

        Raises:
            OSError: the file can't be written.
        """
        if self._folder is None:
            self._in_memory[name] = value
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(name, json.dumps(value))

    def remove(self, name: str, value: Any) -> None:
        """Remove a model's value, if it is this one.

        Raises:
            OSError: the file can't be removed.
        """
        if self._folder is None:
            if self._in_memory.get(name) == value:
                del self._in_memory[name]
            return
        with self.locked(name):
            if self.get(name) == value:
                self._file(name, _FILE).unlink()

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Keep all other processes and threads out of a model's block.

        Raises:
            OSError: the lock's file can't be opened.
        """
        if self._folder is None:
            with self._locks[name]:
                yield
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._file(name, "lock").open("ab") as file:
            # Until the file is closed; each opening has a lock of its own.
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, name: str, text: str) -> None:
        with self._written(name, text) as written:
            written.replace(self._file(name, _FILE))

    @contextmanager
    def _written(self, name: str, text: str, *, synced: bool = False) -> Iterator[Path]:
        """Yield a new file with the text, on the disk if `synced`, to be renamed."""
        written = self._file(name, f"{os.getpid()}.{threading.get_ident()}")
        try:
            with written.open("w") as file:
                file.write(text)
                if synced:
                    file.flush()
                    os.fsync(file.fileno())
            yield written
        except OSError:
            with suppress(OSError):
                written.unlink(missing_ok=True)
            raise

    def _file(self, name: str, ending: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{file_stem(name)}.{ending}"


class DurableJsonFiles(JsonFiles):
    """JsonFiles whose values outlive a power cut, and the damage of one file.

    Each value is in two files, of which the copy is on the disk before the other one
    is replaced: it never has an older value.
    """

    def __init__(self, folder: Path | None, check: Callable[[Any], object]) -> None:
        """Store the folder; `check` raises ValueError for a foreign value."""
        super().__init__(folder)
        self._check = check
        # The reasons that were logged, by model.
        self._logged: dict[str, list[str]] = {}

    def get(self, name: str) -> Any | None:
        """Return a model's value, that of its copy if the file is damaged or gone.

        Raises:
            OSError: the file can't be read, and the copy can't either.
            ValueError: the file is damaged or foreign, and the copy does not help.
        """
        if self._folder is None:
            return super().get(name)
        problems: list[Exception] = []
        for ending in (_FILE, _COPY):
            try:
                value = self._checked(name, ending)
            except (OSError, ValueError) as error:
                problems.append(error)
            else:
                self._log(name, problems)
                return value
        for problem in problems:
            if not isinstance(problem, FileNotFoundError):
                raise problem
        return None

    def _log(self, name: str, problems: Sequence[Exception]) -> None:
        """Log why the copy is read, unless that was the last reason."""
        reasons = [getattr(each, "strerror", None) or str(each) for each in problems]
        if reasons and self._logged.get(name) != reasons:
            _log.error("%s: its copy is read: %s", self._file(name, _FILE), *reasons)
        self._logged[name] = reasons

    def _checked(self, name: str, ending: str) -> Any:
        """Return the value of a file, which must be a valid one."""
        try:
            value = json.loads(self._file(name, ending).read_bytes())
            self._check(value)
        except RecursionError as error:
            raise ValueError("its JSON is nested too deeply") from error
        return value

    def _write(self, name: str, text: str) -> None:
        assert self._folder is not None
        for ending in (_COPY, _FILE):
            with self._written(name, text, synced=True) as written:
                written.replace(self._file(name, ending))
            _sync_folder(self._folder)


def _sync_folder(folder: Path) -> None:
    """Have the names of a folder's files on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
