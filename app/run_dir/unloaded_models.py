"""Names of models that somebody has unloaded, known to all workers of a server.

Each worker loads models by itself, and a request to unload reaches one of them; a
file in a folder that they share tells the others.
"""

import atexit
import shutil
import tempfile
from pathlib import Path


class Unloaded:
    """The set of names; each is an empty file."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use a folder that others share; None: one of its own, once it needs it."""
        self._folder = folder

    def add(self, name: str) -> None:
        """Note that a model is not to be served; `name` is that of a folder."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="basket-unloaded-"))
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._folder.mkdir(exist_ok=True)
        (self._folder / name).touch()

    def discard(self, name: str) -> None:
        """Let the model be served again."""
        if self._folder is not None:
            (self._folder / name).unlink(missing_ok=True)

    def __contains__(self, name: str) -> bool:
        return self._folder is not None and (self._folder / name).exists()
