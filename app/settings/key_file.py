"""Files of keys: one on each line; blank lines and those with a # in front are skipped.

No error shows a key: the texts have the number of the line.
"""

import os
import re
import stat
from pathlib import Path

from app.errors import SettingsError
from app.settings import Settings

# Of printable ASCII: a space or a comma would be a second key on the line.
_KEY = re.compile(r"[!-+\--~]+")
_MAX_BYTES = 1 << 20


def read(file: Path) -> tuple[str, ...]:
    """Return the keys of a file.

    Raises:
        SettingsError: it can't be read, has no key, or a line is not one key.
    """
    try:
        # Without waiting: opening a named pipe would block all requests.
        with open(file, "rb", opener=_open_at_once) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise SettingsError("it is not a regular file")
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(error.strerror or type(error).__name__) from error
    if len(content) > _MAX_BYTES:
        raise SettingsError(f"the file is larger than {_MAX_BYTES} bytes")
    found = []
    # Latin-1 decodes any byte, and the pattern refuses what is not ASCII.
    for number, line in enumerate(content.decode("latin-1").split("\n"), start=1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        if not _KEY.fullmatch(key):
            raise SettingsError(
                f"line {number}: expected one key, of ASCII characters without spaces "
                "and commas"
            )
        found.append(key)
    if not found:
        raise SettingsError("the file has no key")
    return tuple(found)


def _open_at_once(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)


def check(settings: Settings) -> None:
    """Read the files that settings name once.

    Raises:
        SettingsError: one of them is no file of keys; the text names the setting.
    """
    for name in ("api_keys_file", "admin_keys_file"):
        file = getattr(settings, name)
        if file is not None:
            try:
                read(file)
            except SettingsError as error:
                raise in_setting(name, file, error) from error


def in_setting(name: str, file: Path, error: SettingsError) -> SettingsError:
    """Return the error of a file with the setting that names the file."""
    return SettingsError(f"BASKET_{name.upper()}={str(file)!r}: {error}")
