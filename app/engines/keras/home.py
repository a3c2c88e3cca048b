"""Keras's folder without the keras.json that another project may have written.

Keras reads floatx, image_data_format and more from it when it is imported, and with
float16 a model has other answers. KERAS_HOME names the folder, which also keeps what
keras.utils.get_file downloads.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

_CONFIG = "keras.json"
# Folders of downloads.
_CACHES = ("datasets", "models")
_OWN = "basket-keras"
# Removed at the end of the process.
_temporary: list[tempfile.TemporaryDirectory[str]] = []


def hide_config() -> None:
    """Set KERAS_HOME to a folder in Keras's own, with links to all but keras.json.

    Processes that this one starts inherit it.
    """
    home = _home()
    if home.name.startswith(_OWN) or not os.path.isfile(home / _CONFIG):
        return
    with suppress(OSError):  # then Keras reads the file
        folder = _folder_in(home)
        # Without settings Keras has its defaults. Another process may be reading it.
        new = folder / f"{_CONFIG}.{os.getpid()}"
        new.write_text("{}")
        new.replace(folder / _CONFIG)
        for name in _CACHES:
            with suppress(OSError):
                (home / name).mkdir(exist_ok=True)
        for name in set(os.listdir(home)) - {_CONFIG, _OWN}:
            with suppress(OSError):  # another process was first
                (folder / name).symlink_to(home / name)
        os.environ["KERAS_HOME"] = str(folder)


def _home() -> Path:
    """Return the folder that Keras chooses."""
    named = os.environ.get("KERAS_HOME")
    if named is not None:
        return Path(named).expanduser().absolute()
    user = os.path.expanduser("~")
    return Path(user if os.access(user, os.W_OK) else "/tmp") / ".keras"  # noqa: S108


def _folder_in(home: Path) -> Path:
    """Return a folder for all processes, or one of this process in a read-only home."""
    folder = home / _OWN
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
    if os.access(folder, os.W_OK):
        return folder
    _temporary.append(tempfile.TemporaryDirectory(prefix=f"{_OWN}-"))
    return Path(_temporary[-1].name)
