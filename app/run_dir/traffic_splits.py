"""Traffic splits that admins have set over HTTP, in place of basket.toml's."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

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
        # Splits that another one of basket.toml has ended, at the last look.
        self._ended: dict[str, Any] = {}

    def set(self, name: str, weights: Weights, replaced: Weights) -> None:
        """Set a model's weights by label, which replace those of basket.toml.

        Raises:
            OSError: the file can't be written.
        """
        self._files.set(name, [dict(weights), dict(replaced)])

    def of(self, name: str, configured: Weights) -> Weights:
        """Return a model's weights; `configured` are those of basket.toml now.

        Call it once for each look at basket.toml. A split that has ended is removed at
        the second one: at the first, basket.toml may have been read before it was set.
        """
        split = self._files.get(name)
        if split is None or split[1] == configured:
            self._ended.pop(name, None)
            return configured if split is None else split[0]
        if self._ended.get(name) == split:
            with suppress(OSError):
                self._files.remove(name, split)
        self._ended[name] = split
        return configured
