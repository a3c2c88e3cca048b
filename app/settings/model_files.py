"""Names of files and folders on disk that hold a model or a version."""

import os
import re
from pathlib import Path

# Files of a version's folder by preference, and the module of app.engines that opens
# each. Not in app.engines: Gunicorn's master, which imports no NumPy, reads the names.
MODEL_FILES = {
    "model.keras": "{engine}.keras_file",
    "model.h5": "{engine}.keras_file",
    "model.hdf5": "{engine}.keras_file",
    "saved_model.pb": "tensorflow.saved_model",
    "simulated.json": "simulated",
    "tensorflow_serving.json": "tensorflow_serving.engine",
}
# The user's own code, beside one of these files or in place of it.
SERVICE_FILE = "service.py"
# A model of any name that ends so is a Keras file.
KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
# What tf.saved_model.save and Keras's export write.
SAVED_MODEL_ENTRIES = (
    "saved_model.pb",
    *("variables", "assets", "assets.extra", "fingerprint.pb", "keras_metadata.pb"),
)
# Versions are int64, as in TensorFlow Serving.
MAX_VERSION = (1 << 63) - 1

# Files of the run directory have more in their names.
_MAX_NAME_BYTES = 200


def name_problem(name: str) -> str:
    """Return why a folder's name can't be that of a model, or "" if it can."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if size > _MAX_NAME_BYTES:
        return f"its name has more than {_MAX_NAME_BYTES} bytes"
    return ""


def is_version(name: str) -> bool:
    """Return whether a folder's name is the number of a version."""
    return bool(re.fullmatch("[0-9]{1,19}", name)) and int(name) <= MAX_VERSION


def model_file(folder: Path) -> str | None:
    """Return the name of the file that makes a folder a version's."""
    # Unlike Path.is_file, os.path.isfile does not raise if the folder is unreadable.
    names = (*MODEL_FILES, SERVICE_FILE)
    found = (name for name in names if os.path.isfile(folder / name))
    return next(found, None)


def is_keras_file(path: Path) -> bool:
    """Return whether a path is a Keras file of any name."""
    return path.suffix in KERAS_SUFFIXES and os.path.isfile(path)


def lone_keras_file(folder: Path) -> str | None:
    """Return the name of the only Keras file in a folder, whatever its name.

    Raises:
        OSError: the folder can't be read.
        ValueError: there are several.
    """
    names = sorted(os.listdir(folder))
    files = [name for name in names if is_keras_file(folder / name)]
    if len(files) > 1:
        raise ValueError(f"it holds {files[0]} and {files[1]}: name one")
    return files[0] if files else None
