"""What a Keras file holds, whatever its name says."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile, is_zipfile

import h5py

from app.engines.loading import report_unreadable
from app.errors import ModelLoadError
from app.settings.model_files import PICKLE, PYTORCH, SAVE_KERAS

_HDF5 = b"\x89HDF\r\n\x1a\n"
_PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_LFS_POINTER = b"version https://git-lfs.github.com/"


def suffix_of_content(file: Path) -> str:
    """Return the suffix that fits a file's content: .keras (a zip file) or .h5 (HDF5).

    Raises:
        NotYetLoadable: the system does not let the file be read.
        ModelLoadError: it is something else, or incomplete.
    """
    with report_unreadable(file.name), file.open("rb") as content:
        size_bytes = os.fstat(content.fileno()).st_size
        start = content.read(len(_LFS_POINTER))
        names = ZipFile(content).namelist() if is_zipfile(content) else []
    if start.startswith(_HDF5):
        return ".h5"
    if "config.json" in names:
        return ".keras"
    if start.startswith(_LFS_POINTER):
        found = "is a Git LFS pointer: run git lfs pull, and copy the file again"
    elif any(name.endswith("data.pkl") for name in names):
        found = PYTORCH
    elif names:
        found = f"is a zip file without the config.json of a Keras model: {SAVE_KERAS}"
    elif start.startswith(_PICKLES):
        found = PICKLE
    else:
        raise not_whole(file, size_bytes)
    raise ModelLoadError(f"{file.name} {found}")


def not_whole(file: Path, size_bytes: int) -> ModelLoadError:
    """Return the error for an incomplete file."""
    return ModelLoadError(
        f"{file.name} is no whole {file.suffix} file ({size_bytes} bytes): half "
        "copied, or damaged"
    )


@contextmanager
def named(file: Path, suffix: str) -> Iterator[Path]:
    """Yield a path of the file with this suffix, by which Keras chooses its reader."""
    if file.suffix == suffix:
        yield file
        return
    with TemporaryDirectory(prefix="basket-") as folder:
        link = Path(folder) / f"{file.stem}{suffix}"
        link.symlink_to(file.resolve())
        yield link


def model_config(file: Path) -> Any:
    """Return a model's configuration in a file with the suffix of its content.

    None: it holds weights only.
    """
    if file.suffix == ".keras":
        with ZipFile(file) as archive:
            return json.loads(archive.read("config.json"))
    with h5py.File(file) as content:
        return json.loads(content.attrs.get("model_config", "null"))


def keras_version(file: Path, suffix: str) -> str:
    """Return the version of Keras that wrote a file; nothing if it does not say."""
    with suppress(Exception):  # the file's readers raise whatever they raise
        if suffix == ".keras":
            with ZipFile(file) as archive:
                return str(json.loads(archive.read("metadata.json"))["keras_version"])
        with h5py.File(file) as content:
            version = content.attrs["keras_version"]
            return version.decode() if isinstance(version, bytes) else str(version)
    return ""
