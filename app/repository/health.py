"""Liveness of models, over all processes of a server.

A health request reaches one process, and another one may have a stuck model. So each
process leaves notes on its stuck models, which all of them read. The master removes the
notes of dead processes.
"""

import logging
import os
import threading
import time

from app.repository.catalog import Catalog
from app.run_dir.notes import Notes

_log = logging.getLogger(__name__)
_INTERVAL_S = 1.0


class Health:
    """Finds stuck models: those with a job that waits longer than any job may.

    Or all threads of its service.py run calls for longer than that.
    """

    def __init__(self, catalog: Catalog, limit_s: float, notes: Notes) -> None:
        """Store the parts; a job may wait for `limit_s` seconds."""
        self._catalog = catalog
        self._limit_s = limit_s
        self._notes = notes
        # The error of the last update of the notes.
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        """Update this process's notes each second; may be called twice.

        The loader's thread can't do it: to load or unload a model takes minutes.
        """
        if not self._thread.ident:
            self._thread.start()

    def update_notes(self) -> None:
        """Note which models are stuck in this process; log an error once."""
        problem = ""
        try:
            stuck = self.stuck_here()
            for key in stuck:
                self._notes.add(key)
            self._notes.remove_process(os.getpid(), except_keys=stuck)
        except Exception as error:  # must not end the thread
            problem = str(error)
        if problem and problem != self._problem:
            _log.error("stuck models can't be shown to other processes: %s", problem)
        self._problem = problem

    def stuck(self) -> list[str]:
        """Return the models that are stuck in any process, each once, in order."""
        noted = [note.key for note in self._notes.all()]
        return sorted({*self.stuck_here(), *noted})

    def stuck_here(self) -> list[str]:
        """Return the models that are stuck in this process."""
        return [
            f"{model.name} version {model.version}"
            for model in self._catalog.models()
            if model.stuck_s() > self._limit_s
        ]

    def _run(self) -> None:
        while True:
            self.update_notes()
            time.sleep(_INTERVAL_S)
