"""Names of files and folders on disk that hold a model or a version."""

import os
import re
from pathlib import Path

# Files of a version's folder by preference, and the module of app.engines that opens
# each. Not in app.engines: Gunicorn's master, which imports no NumPy, reads the names.
MODEL_FILES = {
    "model.keras": "{engine}.keras_file",
    "model.h5": "{engine}.keras_file",
    "saved_model.pb": "tensorflow.saved_model",
    "simulated.json": "simulated",
    "tensorflow_serving.json": "tensorflow_serving.engine",
}
# The user's own code, beside one of these files or in place of it.
SERVICE_FILE = "service.py"
# A model of any name that ends so is a Keras file.
KERAS_SUFFIXES = (".keras", ".h5")
# Versions are int64, as in TensorFlow Serving.
is_version = re.compile(r"[0-9]{1,18}").fullmatch


def model_file(folder: Path) -> str | None:
    """Return the name of the file that makes a folder a version's."""
    # Unlike Path.is_file, os.path.isfile does not raise if the folder is unreadable.
    names = (*MODEL_FILES, SERVICE_FILE)
    found = (name for name in names if os.path.isfile(folder / name))
    return next(found, None)
