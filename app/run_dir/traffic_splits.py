"""Traffic splits that admins have set over HTTP, in place of basket.toml's."""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

Weights = Mapping[str, float]


class TrafficSplits:
    """The split of each model, with the one of basket.toml that it replaced.

    It is a file, which all processes of a server read, and counts until the server
    ends, or basket.toml has another split. Without a folder it is this process's alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Store the folder, which `set` creates; None: keep the splits in memory."""
        self._folder = folder
        self._in_memory: dict[str, tuple[Weights, Weights]] = {}

    def set(self, name: str, weights: Weights, replaced: Weights) -> None:
        """Set a model's weights by label, which replace those of basket.toml.

        Raises:
            OSError: the file can't be written.
        """
        if self._folder is None:
            self._in_memory[name] = weights, replaced
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(name)
        # A reader finds the whole old file or the whole new one.
        written = file.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        written.write_text(json.dumps([dict(weights), dict(replaced)]))
        written.replace(file)

    def of(self, name: str, configured: Weights) -> Weights:
        """Return a model's weights; `configured` are those of basket.toml now."""
        weights, replaced = self._find(name) or (configured, configured)
        return weights if replaced == configured else configured

    def _find(self, name: str) -> tuple[Weights, Weights] | None:
        if self._folder is None:
            return self._in_memory.get(name)
        try:
            weights, replaced = json.loads(self._file(name).read_text())
        except FileNotFoundError:
            return None
        return weights, replaced

    def _file(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{quote(name, safe='')}.json"
