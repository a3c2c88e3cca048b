"""Traffic splits that admins have set over HTTP, in place of basket.toml's."""

from collections.abc import Mapping
from pathlib import Path

from app.run_dir.json_files import JsonFiles

Weights = Mapping[str, float]


class TrafficSplits:
    """The split of each model, with the one of basket.toml that it replaced.

    It is a file, which all processes of a server read, and counts until the server
    ends, or basket.toml has another split. Without a folder it is this process's alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Store the folder, which `set` creates; None: keep the splits in memory."""
        self._files = JsonFiles(folder)

    def set(self, name: str, weights: Weights, replaced: Weights) -> None:
        """Set a model's weights by label, which replace those of basket.toml.

        Raises:
            OSError: the file can't be written.
        """
        self._files.set(name, [dict(weights), dict(replaced)])

    def of(self, name: str, configured: Weights) -> Weights:
        """Return a model's weights; `configured` are those of basket.toml now."""
        weights, replaced = self._files.get(name) or (configured, configured)
        return weights if replaced == configured else configured
