"""Scans of the model folder, with <name>/basket.toml and <name>/<version>/.

Only folders whose names are numbers are versions. So a version that is written under
another name, such as .tmp-2, and then renamed, is never loaded half written.
"""

import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.engines.layout import Layout
from app.errors import SettingsError
from app.settings import Settings
from app.settings.model_config import ModelConfig, config_files, read_model_config
from app.settings.model_files import (
    MODEL_FILES,
    SAVED_MODEL_ENTRIES,
    SERVICE_FILE,
    is_hidden,
    is_system_folder,
    is_version,
    model_file,
    name_problem,
)

# Name, size and modification time of each file.
Fingerprint = frozenset[tuple[str, int, int]]
# So much of the begin and of the end of a file is compared: a .keras file, as any zip
# file, ends with checksums of its content, and the index of a SavedModel is small.
_END_BYTES = 64 << 10


@dataclass(frozen=True)
class ModelFolder:
    """A model on disk; `config` may be the error of its basket.toml.

    `warnings` name models in places where none is loaded, or say that there is none.
    With `is_overwritten` the only version is a file or a folder that becomes the next
    version when it is overwritten; there is no version meanwhile.
    """

    name: str
    versions: Mapping[int, Path]
    config: ModelConfig | SettingsError
    warnings: Sequence[str] = ()
    is_overwritten: bool = False

    @property
    def is_incomplete(self) -> bool:
        """Return whether the only version is being written."""
        return self.is_overwritten and not self.versions


@dataclass(frozen=True)
class Content:
    """The files of a version when it was loaded, with checksums."""

    files: Fingerprint
    checksums: Mapping[str, int]


def scan(model_dir: Path, settings: Settings) -> dict[str, ModelFolder]:
    """Return all models by name, also those whose own folder can't be read.

    Raises:
        OSError: the model folder can't be read.
    """
    parts = SAVED_MODEL_ENTRIES if model_file(model_dir) else ()
    found = [
        read_folder(folder, folder.name, settings)
        for folder in sorted(model_dir.iterdir())
        if not is_hidden(folder.name)
        and not folder.name.startswith("_")
        and folder.name not in parts
        and not name_problem(folder.name)
    ]
    return {model.name: model for model in found if model is not None}


def fingerprint(version: Path) -> Fingerprint:
    """Return the names, sizes and times of a version's files; it may be a file."""
    return look(version)[0]


def look(version: Path) -> tuple[Fingerprint, float]:
    """Return a version's fingerprint, and the Unix time of its last change, or 0.

    Other than the times of the fingerprint, nobody can set that one back.
    """
    files, changed_at = set(), 0.0
    for file, status in _files(version):
        name = str(file.relative_to(version))
        files.add((name, status.st_size, status.st_mtime_ns))
        changed_at = max(changed_at, status.st_ctime)
    return frozenset(files), changed_at


def content(version: Path, files: Fingerprint) -> Content:
    """Return a version's files with checksums, for a later `has_changed`."""
    return Content(files, _checksums(version, (name for name, *_ in files)))


def has_changed(before: Content | None, version: Path) -> bool:
    """Return whether any loaded file was overwritten with other content.

    Added and removed files do not count, nor do copies of the same content, with which
    git-sync and Kubernetes replace all files at each change. None: nothing was loaded.
    """
    if before is None:
        return False
    touched = {name for name, *_ in before.files - fingerprint(version)}
    now = _checksums(version, touched)
    return any(before.checksums.get(name) != now[name] for name in now)


def _files(version: Path) -> Iterator[tuple[Path, os.stat_result]]:
    counts = _entry_filter(version)
    for file in (version, *version.rglob("*")):
        if not all(map(counts, file.relative_to(version).parts[:1])):
            continue
        with suppress(OSError):  # removed meanwhile, or a broken link
            status = file.stat()
            # A folder's time changes with files that do not count.
            if not stat.S_ISDIR(status.st_mode):
                yield file, status


def _entry_filter(version: Path) -> Callable[[str], bool]:
    """Return a test whether an entry of a version's folder is part of the model.

    With BASKET_MODEL the folder may hold basket.toml, its classes, and anything else.
    """
    is_code = os.path.isfile(version / SERVICE_FILE)
    if not is_code and model_file(version) not in (None, "model.onnx"):
        return {*MODEL_FILES, *SAVED_MODEL_ENTRIES}.__contains__
    # Code may read any other file, and a model.onnx has its weights in any.
    ignored = config_files(version)
    return lambda name: name not in ignored and not is_system_folder(name)


def _checksums(version: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the checksums of those that are readable files."""
    found = {}
    for name in filter(lambda name: (version / name).is_file(), names):
        with suppress(OSError), (version / name).open("rb") as file:
            checksum = zlib.crc32(file.read(_END_BYTES))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _END_BYTES, 0))
            found[name] = zlib.crc32(b"%d" % size + file.read(), checksum)
    return found


def read_folder(folder: Path, name: str, settings: Settings) -> ModelFolder | None:
    """Return a model, or None if its path is no folder, or was removed meanwhile."""
    try:
        versions, warnings = _versions(folder, Layout(settings))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = f"its folder can't be read now: {error.strerror}"
        return ModelFolder(name, {}, SettingsError(reason))
    return ModelFolder(name, versions, read_config(folder, settings), warnings)


def read_config(folder: Path, settings: Settings) -> ModelConfig | SettingsError:
    """Return the configuration in a model's folder, or its error."""
    try:
        return read_model_config(folder, settings)
    except SettingsError as error:
        return error
    except Exception as error:  # must not end the scan of the others
        return SettingsError(f"can't be read ({type(error).__name__})")


def _versions(folder: Path, layout: Layout) -> tuple[dict[int, Path], list[str]]:
    """Return a model's versions, and warnings of models that are in wrong places."""
    versions: dict[int, Path] = {}
    warnings, others = [], []
    for each in sorted(folder.iterdir()):
        if not is_version(each.name) or not each.is_dir():
            others.append(each)
            continue
        number = int(each.name)
        if number in versions:
            ignored = versions[number].name
            warnings.append(
                f"{ignored} is left out: {each.name} is version {number} too"
            )
        versions[number] = each
    warnings.extend(layout.misplaced(folder, versions, others))
    if not versions and not warnings:
        warnings.append(layout.missing_version(folder))
    return versions, warnings
