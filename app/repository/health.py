"""Whether models make progress, over all processes of a server.

A request for the health reaches one process, and another one may be stuck: each notes
its own state in a folder that they share, from which whoever has made the folder
takes the notes of the dead.
"""

import logging
import os
import threading
import time
from pathlib import Path

from app.repository.catalog import Catalog

_log = logging.getLogger(__name__)
_NOTE_EVERY_S = 1.0


class Health:
    """Knows what is stuck: a model whose jobs have waited longer than any may."""

    def __init__(
        self, catalog: Catalog, limit_s: float, folder: Path | None = None
    ) -> None:
        """Store the parts; `folder` is shared with other processes, None: with none."""
        self._catalog = catalog
        self._limit_s = limit_s
        self._folder = folder
        # Why the other processes could not be told the last time.
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        """Begin to note each second how this process is doing, if anyone can read it.

        In a thread of its own, because to load or to unload a model takes minutes.
        """
        if self._folder is not None and not self._thread.ident:
            self._thread.start()

    def note(self) -> None:
        """Tell the other processes how this one is doing, if they can be told now."""
        if self._folder is None:
            return
        problem = ""
        try:
            self._tell(self._folder)
        except Exception as error:  # must not end the thread
            problem = str(error)
        if problem and problem != self._problem:
            _log.error("other processes can't be told what is stuck here: %s", problem)
        self._problem = problem

    def stuck(self) -> list[str]:
        """The models, each once, that make no progress in some process."""
        names = set(self.stuck_here())
        for file in self._folder.glob("[0-9]*") if self._folder else ():
            try:
                names.update(file.read_text().splitlines())
            except FileNotFoundError:  # it goes on just now
                continue
        return sorted(names)

    def stuck_here(self) -> list[str]:
        """The models that make no progress in this process."""
        return [
            f"{model.name} version {model.version}"
            for model in self._catalog.models()
            if model.runner.stuck_s() > self._limit_s
        ]

    def _tell(self, folder: Path) -> None:
        file = folder / str(os.getpid())
        names = self.stuck_here()
        if names:
            folder.mkdir(exist_ok=True)
            # Renamed when it is whole, so that nobody reads half of it.
            aside = folder / f".{file.name}"
            aside.write_text("\n".join(names))
            aside.rename(file)
        else:
            file.unlink(missing_ok=True)

    def _run(self) -> None:
        while True:
            self.note()
            time.sleep(_NOTE_EVERY_S)
