"""Names of models that somebody has unloaded, known to all workers of a server.

Each worker loads models by itself, and a request to unload reaches one of them; a
file in a folder that they share tells the others.
"""

import tempfile
from pathlib import Path


class Unloaded:
    """The set of names; each is an empty file."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use a folder that others share; None: one of its own."""
        if folder is None:
            self._own = tempfile.TemporaryDirectory()
            folder = Path(self._own.name)
        self._folder = folder

    def add(self, name: str) -> None:
        """Note that a model is not to be served; `name` is that of a folder."""
        (self._folder / name).touch()

    def discard(self, name: str) -> None:
        """Let the model be served again."""
        (self._folder / name).unlink(missing_ok=True)

    def __contains__(self, name: str) -> bool:
        return (self._folder / name).exists()
