"""Exemplars of all processes of a server, in files beside those of their metrics.

prometheus_client sums the metrics of several processes without their exemplars. So
each process writes its own, the last one of each bucket, to a file of JSON.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.samples import Exemplar

from app.run_dir.json_files import JsonFiles
from app.run_dir.notes import is_alive

# A sample's name and labels.
Series = tuple[str, frozenset[tuple[str, str]]]


def series_of(name: str, labels: Mapping[str, str]) -> Series:
    """Return what tells a sample from all others."""
    return name, frozenset(labels.items())


class ExemplarFile:
    """The exemplars of this process, by the keys of prometheus_client's own files."""

    def __init__(self, folder: Path) -> None:
        """Store the folder; the file is there once there is an exemplar."""
        self._files = JsonFiles(folder)
        # Labels, value, and seconds since 1970.
        self._last: dict[str, tuple[dict[str, str], float, float]] = {}
        self._is_written = True
        self._writing = threading.Lock()

    def set(self, key: str, exemplar: Exemplar) -> None:
        """Replace the exemplar of a series; any thread may call this."""
        self._last[key] = (exemplar.labels, exemplar.value, time.time())
        self._is_written = False

    def write(self) -> None:
        """Write the exemplars, if one is new: a reader finds all or none of them.

        Raises:
            OSError: the file can't be written.
        """
        if self._is_written:
            return
        with self._writing:
            self._is_written = True
            self._files.set(f"exemplars_{os.getpid()}", self._last.copy())


def newest(folder: Path) -> dict[Series, Exemplar]:
    """Return the newest exemplar of each series; files of dead processes are removed.

    Raises:
        OSError: a file can't be read or removed.
        ValueError: a file is foreign.
    """
    found: dict[str, tuple[dict[str, str], float, float]] = {}
    for file in folder.glob("exemplars_*"):
        # What is not renamed yet has more parts.
        name = file.name.partition(".")[0]
        if not is_alive(int(name.rpartition("_")[2])):
            file.unlink(missing_ok=True)
        elif file.suffix == ".json":
            for key, (*rest, at) in json.loads(file.read_bytes()).items():
                if key not in found or found[key][-1] < at:
                    found[key] = (*rest, at)
    exemplars = {}
    for key, each in found.items():
        _, name, labels, _ = json.loads(key)
        exemplars[series_of(name, labels)] = Exemplar(*each)
    return exemplars
