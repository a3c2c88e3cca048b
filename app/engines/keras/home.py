"""Keras's folder without keras.json, which another project may have written.

Keras reads floatx, image_data_format and more from it when it is imported, and with
float16 a model has other answers. KERAS_HOME names the folder, which also keeps what
keras.utils.get_file downloads.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from app import run_dir

_CONFIG = "keras.json"
# Folders of downloads.
_CACHES = ("datasets", "models")
_PREFIX = "basket-keras-"
# Removed at the end of the process, if it is not in the run directory.
_temporary: list[tempfile.TemporaryDirectory[str]] = []


def hide_config() -> None:
    """Set KERAS_HOME to a folder like Keras's own, but without its keras.json.

    Processes that this one starts inherit it.
    """
    home = _home()
    if home.name.startswith(_PREFIX) or not os.path.isfile(home / _CONFIG):
        return
    with suppress(OSError):  # then Keras reads the file
        folder = _new_folder()
        for name in _CACHES:
            with suppress(OSError):
                (home / name).mkdir(exist_ok=True)
        for name in os.listdir(home):
            if name != _CONFIG:
                with suppress(FileExistsError):  # another worker was first
                    (folder / name).symlink_to(home / name)
        os.environ["KERAS_HOME"] = str(folder)


def _home() -> Path:
    """Return the folder that Keras chooses."""
    named = os.environ.get("KERAS_HOME")
    if named is not None:
        return Path(named).expanduser().absolute()
    user = os.path.expanduser("~")
    return Path(user if os.access(user, os.W_OK) else "/tmp") / ".keras"  # noqa: S108


def _new_folder() -> Path:
    """Return a folder for all processes of the server, or else for this one."""
    folder = run_dir.path_of(f"{_PREFIX}home")
    if folder is None:
        _temporary.append(tempfile.TemporaryDirectory(prefix=_PREFIX))
        return Path(_temporary[-1].name)
    folder.mkdir(exist_ok=True)
    return folder
