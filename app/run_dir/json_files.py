"""JSON values by model name that the processes of a server share."""

import fcntl
import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote


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
            return json.loads(self._file(name, "json").read_bytes())
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
        written = self._file(name, f"{os.getpid()}.{threading.get_ident()}")
        written.write_text(json.dumps(value))
        written.replace(self._file(name, "json"))

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

    def _file(self, name: str, ending: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{quote(name, safe='')}.{ending}"
