"""Whether models make progress, over all processes of a server.

A request for the health reaches one process, and another one may be stuck: each notes
its own state in a folder that they share.
"""

import logging
import os
from pathlib import Path

from app.pids import lives
from app.serving.catalog import Catalog

_log = logging.getLogger(__name__)


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

    def note(self) -> None:
        """Tell the other processes how this one is doing, if they can be told now."""
        if self._folder is None:
            return
        problem = ""
        try:
            self._tell(self._folder)
        except OSError as error:
            problem = str(error)
        if problem and problem != self._problem:
            _log.error("other processes can't be told what is stuck here: %s", problem)
        self._problem = problem

    def stuck(self) -> list[str]:
        """The models, each once, that make no progress in some living process."""
        names = set(self.stuck_here())
        for file in self._folder.glob("[0-9]*") if self._folder else ():
            if lives(int(file.name)):
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
            file.write_text("\n".join(names))
        else:
            file.unlink(missing_ok=True)
