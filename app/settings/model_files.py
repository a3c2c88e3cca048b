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
    "model.tflite": "litert.engine",
    "model.onnx": "onnx.engine",
    "simulated.json": "simulated",
    "tensorflow_serving.json": "tensorflow_serving.engine",
}
# The user's own code, beside one of these files or in place of it.
SERVICE_FILE = "service.py"
# A file of any name that ends so is a model.
MODEL_SUFFIXES = tuple(
    name.removeprefix("model") for name in MODEL_FILES if name.startswith("model.")
)
KERAS_FILES = tuple(
    name for name, module in MODEL_FILES.items() if module == "{engine}.keras_file"
)
# What tf.saved_model.save and Keras's export write.
SAVED_MODEL_ENTRIES = (
    "saved_model.pb",
    "variables",
    "assets",
    "assets.extra",
    "fingerprint.pb",
    "keras_metadata.pb",
)
SAVE_KERAS = 'save the whole model with model.save("model.keras")'
WEIGHTS = f"holds weights without a model: {SAVE_KERAS}"
_OWN_CODE = "load it in a service.py (docs/user_code.md, Models without a model file)"
PICKLE = (
    "is a Python pickle, which is not opened: save a Keras model with "
    'model.save("model.keras"), write one of scikit-learn as model.onnx with skl2onnx, '
    f"or {_OWN_CODE}"
)
PYTORCH = f"is a PyTorch file: write model.onnx with torch.onnx.export, or {_OWN_CODE}"
# Endings of files that no engine opens: what they are, and what to do next.
_OTHER_FILES = {
    ".weights.h5": (
        f"is named as weights without a model: {SAVE_KERAS}, or rename the file to "
        "model.h5 if it is a whole model"
    ),
    ".pb": (
        "is a graph without the signatures of a SavedModel: write one of it "
        "(docs/other_files.md)"
    ),
    "model.json": (
        "is a model of TensorFlow.js: convert it back with tensorflowjs_converter "
        "(docs/other_files.md)"
    ),
    **dict.fromkeys((".joblib", ".pkl", ".pickle"), PICKLE),
    **dict.fromkeys((".pt", ".pth"), PYTORCH),
    ".safetensors": (
        "holds weights without a model: write model.onnx where its code is, or "
        f"{_OWN_CODE}"
    ),
}
# Versions are int64, as in TensorFlow Serving.
MAX_VERSION = (1 << 63) - 1

# What file systems, storage servers and desktops add to folders, in lower case.
_SYSTEM_FOLDERS = (
    "lost+found",
    ".snapshot",
    "~snapshot",
    "#snapshot",
    "#recycle",
    "@eadir",
    "@tmp",
    "@recycle",
    "@recently-snapshot",
    "$recycle.bin",
    "recycler",
    "system volume information",
)

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


def is_system_folder(name: str) -> bool:
    """Return whether a name is that of a folder which no user has made."""
    return name.lower() in _SYSTEM_FOLDERS


def is_hidden(name: str) -> bool:
    """Return whether an entry of a folder is left out without a word."""
    return name.startswith(".") or is_system_folder(name)


def is_version(name: str) -> bool:
    """Return whether a folder's name is the number of a version."""
    return bool(re.fullmatch("[0-9]{1,19}", name)) and int(name) <= MAX_VERSION


def model_file(folder: Path) -> str | None:
    """Return the name of the file that makes a folder a version's."""
    # Unlike Path.is_file, os.path.isfile does not raise if the folder is unreadable.
    names = (*MODEL_FILES, SERVICE_FILE)
    found = (name for name in names if os.path.isfile(folder / name))
    return next(found, None)


def is_model_file(path: Path) -> bool:
    """Return whether a path is a file of any name that alone is a model."""
    is_named = path.suffix in MODEL_SUFFIXES and not other_file(path)
    return is_named and os.path.isfile(path)


def lone_model_file(folder: Path, *, only_keras: bool = False) -> str | None:
    """Return the name of the only model in a folder that is one file of any name.

    A .keras or .h5 file comes before files of other kinds, which may be conversions of
    it; with `only_keras` these do not count.

    Raises:
        OSError: the folder can't be read.
        ValueError: there are several.
    """
    names = sorted(os.listdir(folder))
    # macOS writes a ._my.keras beside my.keras on other file systems.
    files = [
        name for name in names if not is_hidden(name) and is_model_file(folder / name)
    ]
    # A .hdf5 file may hold anything.
    keras = [name for name in files if name.endswith((".keras", ".h5"))]
    if keras or only_keras:
        files = keras
    if len(files) > 1:
        raise ValueError(f"it holds {files[0]} and {files[1]}: name one")
    return files[0] if files else None


def other_file(path: Path) -> str:
    """Return what a file is that no engine opens, and what to do; "" for all others."""
    if path.name in SAVED_MODEL_ENTRIES or not os.path.isfile(path):
        return ""
    found = (what for end, what in _OTHER_FILES.items() if path.name.endswith(end))
    return next(found, "")
