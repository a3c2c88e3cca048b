"""Keys that clients show: those of a setting, or of a file that may change."""

import contextlib
import hmac
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from app.errors import SettingsError
from app.settings import key_file

# Seconds between two looks at a file.
_LOOK_EVERY_S = 1.0
_log = logging.getLogger(__name__)


class Keys:
    """A fixed set of keys, which may be empty: then none is required."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        """Store the keys."""
        self._keys = _encoded(keys)

    def are_set(self) -> bool:
        """Return whether there are keys at all."""
        return bool(self._keys)

    def have(self, given: bytes) -> bool:
        """Return whether this is one of the keys, in constant time."""
        # A list, not a generator: every key is compared.
        return True in [hmac.compare_digest(given, each) for each in self._keys]


class KeysOfFile(Keys):
    """The keys of a file, which is read again when it has changed.

    `setting` is the field of Settings that names the file, for errors. The last good
    keys are in `copy` too, so that a worker that starts while the file is broken has
    them; None: there are no other processes.
    """

    def __init__(
        self,
        setting: str,
        file: Path,
        copy: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the keys.

        Raises:
            SettingsError: the file is missing, unreadable, empty or malformed, and
                there is no copy.
        """
        self._variable = f"BASKET_{setting.upper()}"
        self._file, self._copy = file, copy
        self._clock = clock
        self._next_look_at = clock() + _LOOK_EVERY_S
        # What the keys were read from; None while the file is broken.
        self._seen: tuple[int, ...] | None = _identity(file)
        try:
            super().__init__(key_file.read(file))
        except SettingsError as error:
            if copy is None or not copy.exists():
                raise key_file.in_setting(setting, file, error) from error
            super().__init__(key_file.read(copy))
            self._note_broken(error)
        else:
            self._write_copy()

    def have(self, given: bytes) -> bool:
        """Return whether this is a key, at most about a second after a change."""
        now = self._clock()
        if now >= self._next_look_at:
            self._next_look_at = now + _LOOK_EVERY_S
            self._look()
        return super().have(given)

    def _look(self) -> None:
        """Read the file if it has changed; keep the last good keys if it is broken."""
        # Before the file is read: what is written meanwhile is seen at the next look.
        identity = _identity(self._file)
        if identity == self._seen:
            return
        try:
            keys = _encoded(key_file.read(self._file))
        except SettingsError as error:
            self._note_broken(error)
            return
        self._seen = identity
        if keys != self._keys:
            self._keys = keys
            _log.info("%s was read again: %s keys", self._variable, len(keys))
        self._write_copy()

    def _note_broken(self, error: SettingsError) -> None:
        if self._seen is not None:
            self._seen = None
            _log.error("%s: %s; the last good keys stay valid", self._variable, error)

    def _write_copy(self) -> None:
        if self._copy is None:
            return
        # Only a worker that starts while the file is broken needs the copy.
        with contextlib.suppress(OSError):
            # Only its owner may read it.
            with tempfile.NamedTemporaryFile(
                dir=self._copy.parent, delete=False
            ) as partial:
                partial.write(b"\n".join(self._keys))
            Path(partial.name).replace(self._copy)


def _encoded(keys: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(key.encode() for key in keys)


def _identity(file: Path) -> tuple[int, ...]:
    """Return what differs after a change of a file, () if there is none."""
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
