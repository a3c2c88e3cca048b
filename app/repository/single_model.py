"""The model of BASKET_MODEL, as a folder of models with this one in it.

A file that is overwritten becomes the next version. Nothing is copied: a version is
loaded from where it lies, and its number stands for the names, sizes, times and
checksums of its files, so that in all processes a number has the same content. Files
from images and archives may all have one date, and the size of the files before: their
begins and ends tell them apart.
"""

import hashlib
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from app import run_dir
from app.errors import SettingsError
from app.repository.scan import (
    ModelFolder,
    content,
    look,
    read_config,
    read_folder,
    scan,
)
from app.run_dir.json_files import JsonFiles
from app.settings import Settings
from app.settings.model_source import find_model, name_of

# Returns all models by name.
Scan: TypeAlias = Callable[[], dict[str, ModelFolder]]
# Files that have not changed for so long are complete.
_COMPLETE_AFTER_S = 1.0
# The time of a later change is another one, whatever the file system.
_SETTLED_AFTER_S = 3.0
_DIGEST_BYTES = 16


def scanner(settings: Settings) -> Scan:
    """Return the scan of the model folder, or of BASKET_MODEL if that is set."""
    if settings.model is None:
        return partial(scan, settings.model_dir, settings)
    digests = JsonFiles(run_dir.path_of("version_digests"))
    return SingleModel(settings, settings.model, digests).scan


class SingleModel:
    """Scans one file or folder; without version folders, it is one version."""

    def __init__(self, settings: Settings, path: Path, digests: JsonFiles) -> None:
        """Store the parts.

        `digests` has those of the contents so far, by the model's name: the first one
        is version 1.
        """
        self._settings = settings
        self._path = path
        self._digests = digests
        # What the last digest was made of.
        self._seen: object = None
        self._last_digest = ""

    def scan(self) -> dict[str, ModelFolder]:
        """Return the model by its name, also if its file is away or can't be read.

        Raises:
            OSError: the digests can't be read or written.
            SettingsError: the name is invalid.
        """
        name = name_of(self._settings)
        try:
            source = find_model(self._path)
        except SettingsError as error:
            reason = SettingsError(f"BASKET_MODEL: {error}")
            return {name: ModelFolder(name, {}, reason)}
        if source.version is None:
            folder = read_folder(source.folder, name, self._settings)
            return {} if folder is None else {name: folder}
        config = read_config(source.folder, self._settings)
        number = self._number(name, source.version, isinstance(config, SettingsError))
        versions = {} if number is None else {number: source.version}
        return {name: ModelFolder(name, versions, config, is_overwritten=True)}

    def _number(self, name: str, version: Path, is_kept: bool) -> int | None:
        """Return the number of the files as they are now; None: they are incomplete.

        With `is_kept` return the last one: a basket.toml that can't be read does not
        say which file has the classes, and nothing is loaded until it can.
        """
        with self._digests.locked(name):
            known = self._digests.get(name) or []
            if is_kept:
                return max(len(known), 1)
            digest = self._digest(version)
            if known[-1:] == [digest]:
                return len(known)
            if not _is_complete(version):
                return None
            self._digests.set(name, [*known, digest])
            return len(known) + 1

    def _digest(self, version: Path) -> str:
        """Return a digest of the files; they are read when a file has changed."""
        # A file that is moved into the place of another one has changed later.
        seen = look(version)
        if seen != self._seen:
            files, changed_at = seen
            checksums = content(version, files).checksums
            text = repr((sorted(files), sorted(checksums.items())))
            digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES)
            # Times of files may be as coarse as seconds: read them again until then.
            is_settled = not 0 <= time.time() - changed_at < _SETTLED_AFTER_S
            is_whole = len(checksums) == len(files)
            self._seen = seen if is_settled and is_whole else None
            self._last_digest = digest.hexdigest()
        return self._last_digest


def _is_complete(version: Path) -> bool:
    """Return whether nobody seems to be writing a version's files."""
    # The last bytes that are written make a zip file valid.
    if version.suffix == ".keras" and zipfile.is_zipfile(version):
        return True
    # Looked at again: a file may have changed while others were read. A change in the
    # future is another machine's clock.
    _, changed_at = look(version)
    return not 0 <= time.time() - changed_at < _COMPLETE_AFTER_S
