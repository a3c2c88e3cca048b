"""The folder of models: <name>/basket.toml and <name>/<version>/.

It is read again and again while the server runs. Only folders whose names are
numbers are versions, so one that is written under another name, such as .tmp-2,
and then renamed, is never seen half done.
"""

import os
import re
import stat
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.engines import MODEL_FILES
from app.errors import SettingsError
from app.settings import Settings
from app.settings.model_config import ModelConfig, read_model_config

# As TensorFlow Serving's int64; more digits are no version.
_IS_VERSION = re.compile(r"[0-9]{1,18}").fullmatch
# Size and time of each file: what changes when a version is written over.
Fingerprint = frozenset[tuple[str, int, int]]
# So much of a file's begin and end tells what is in it: a .keras file has checksums of
# all it holds at its end, as any zip file, and a SavedModel's index is a small file.
_END_BYTES = 64 << 10


@dataclass(frozen=True)
class ModelFolder:
    """A model as it stands on disk: its configuration or what is wrong with it.

    `notes` say what in it only looks like a version.
    """

    name: str
    versions: Mapping[int, Path]
    config: ModelConfig | SettingsError
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Content:
    """A version's files as they were when it was loaded, with checksums of each."""

    files: Fingerprint
    checksums: Mapping[str, int]


def scan(model_dir: Path, settings: Settings) -> dict[str, ModelFolder]:
    """All models by name, those whose own folder can't be read now too.

    Raises:
        OSError: the folder of models itself can't be read now.
    """
    found = [
        _read(folder, settings)
        for folder in sorted(model_dir.iterdir())
        if not folder.name.startswith((".", "_", "lost+found"))
    ]
    return {model.name: model for model in found if model is not None}


def fingerprint(version: Path) -> Fingerprint:
    """What tells whether a version's files are those that were loaded, or tried."""
    found = set()
    for file in version.rglob("*"):
        try:
            status = file.stat()
        except OSError:  # on its way in or out
            continue
        if stat.S_ISDIR(status.st_mode):  # changes with what comes and goes in it
            continue
        name = str(file.relative_to(version))
        found.add((name, status.st_size, status.st_mtime_ns))
    return frozenset(found)


def content(version: Path, files: Fingerprint) -> Content:
    """What tells later whether these, a version's files, have been written over."""
    return Content(files, _checksums(version, (name for name, *_ in files)))


def has_changed(before: Content | None, version: Path) -> bool:
    """Whether a file that was there before is another one now; None: there was none.

    Files that come and go beside it do not count, nor do copies of the same, such as
    those that git-sync and Kubernetes put in the place of all files with each change.
    """
    if before is None:
        return False
    touched = {name for name, *_ in before.files - fingerprint(version)}
    now = _checksums(version, touched)
    return any(before.checksums.get(name) != now[name] for name in now)


def _checksums(version: Path, names: Iterable[str]) -> dict[str, int]:
    """Of those that are files and can be read."""
    found = {}
    for name in filter(lambda name: (version / name).is_file(), names):
        with suppress(OSError), (version / name).open("rb") as file:
            checksum = zlib.crc32(file.read(_END_BYTES))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _END_BYTES, 0))
            found[name] = zlib.crc32(b"%d" % size + file.read(), checksum)
    return found


def _read(folder: Path, settings: Settings) -> ModelFolder | None:
    """A model, None: this is no folder, or is gone by now."""
    versions: dict[int, Path] = {}
    notes: list[str] = []
    config: ModelConfig | SettingsError
    try:
        versions, notes = _contents(folder)
        config = read_model_config(folder, settings)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        config = SettingsError(f"its folder can't be read now: {error.strerror}")
    except SettingsError as error:
        config = error
    except Exception as error:  # must not end the scan of the others
        config = SettingsError(f"can't be read ({type(error).__name__})")
    return ModelFolder(folder.name, versions, config, notes)


def _contents(folder: Path) -> tuple[dict[int, Path], list[str]]:
    """A model's versions, and a note on each thing that only looks like one."""
    versions: dict[int, Path] = {}
    notes, others = [], []
    for each in sorted(folder.iterdir()):
        if not _IS_VERSION(each.name) or not each.is_dir():
            others.append(each)
            continue
        number = int(each.name)
        if number in versions:
            left_out = versions[number].name
            notes.append(f"{left_out} is left out: {each.name} is version {number} too")
        versions[number] = each
    following = max(versions, default=0) + 1
    for each in others:
        # Links, such as one called latest, are somebody's own.
        if each.name[0] in "._" or each.is_symlink():
            continue
        file = _model_in(each)
        if file:
            notes.append(
                f"{each.name} holds {file} and is no version: the name of one is a "
                f"number, such as {following}"
            )
    file = _model_in(folder)
    if file and _IS_VERSION(folder.name):
        notes.append(
            f"holds {file}, so BASKET_MODEL_DIR looks like one model: it is to be the "
            "folder above"
        )
    elif file:
        notes.append(
            f"{file} lies in {folder.name}: move it to {folder.name}/{following}"
        )
    return versions, notes


def _model_in(folder: Path) -> str | None:
    # Path.is_file raises where the folder may not be entered; this says no.
    there = (name for name in MODEL_FILES if os.path.isfile(folder / name))
    return next(there, None)
