"""What is known of a model's versions beyond a restart: proven, refused, forced.

The record is a JSON file for each model, with a copy, in `.promotions` of
BASKET_CAPTURE_DIR. A version is recorded with a digest of its files: other files under
its number are another version.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.run_dir.json_files import DurableJsonFiles

_log = logging.getLogger(__name__)
# A model's name does not begin with a dot.
_FOLDER = ".promotions"
# Why versions are refused that may have been refused before.
LOST = (
    "the record in BASKET_CAPTURE_DIR can't be read, and may have refused it; "
    "`models promote` has it prove itself"
)


@dataclass(frozen=True)
class Recorded:
    """A version; `content` is the digest of its files."""

    version: int
    content: str


@dataclass(frozen=True)
class Refusal:
    """Why a version with this content is not promoted."""

    content: str
    reason: str


@dataclass(frozen=True)
class Record:
    """One model's record.

    `proven` is the version that serves after a restart, None: the newest one. `forced`
    is to be promoted without a proof. If the record is lost, nobody knows which version
    was proven or refused, until one is recorded as proven.
    """

    proven: Recorded | None = None
    refused: Mapping[int, Refusal] = field(default_factory=dict)
    forced: Recorded | None = None
    is_lost: bool = False


class Records:
    """The records of all models; processes change them one at a time.

    On a full disk each process goes by what it knows, and writes it once there is room.
    """

    def __init__(
        self, capture_dir: Path | None, *, keeps_unwritten: bool = True
    ) -> None:
        """Store the folder; None: in this process's memory.

        Without `keeps_unwritten`, changes raise OSError if they can't be written.
        """
        self._keeps_unwritten = keeps_unwritten
        folder = None if capture_dir is None else capture_dir / _FOLDER
        self._files = DurableJsonFiles(folder, _from_json)
        # Changes that could not be written, records that were read last, and reasons
        # that were logged.
        self._unwritten: dict[str, Sequence[_Change]] = {}
        self._last: dict[str, Record] = {}
        self._warned: dict[str, str] = {}

    def of(self, name: str) -> Record:
        """Return a model's record, a lost one if its files are damaged or foreign.

        Of files that can't be read or written this process knows the last record.
        """
        changes = self._unwritten.get(name, ())
        if changes:
            with suppress(OSError):
                self._write(name, changes)
        return _changed(self._read(name), self._unwritten.get(name, ()))

    def _read(self, name: str) -> Record:
        """Return the record of the files."""
        try:
            value = self._files.get(name)
        except (OSError, ValueError) as error:
            self._warn(name, error)
            return self._last.get(name, Record(is_lost=True))
        self._warned.pop(name, None)
        self._last[name] = record = Record() if value is None else _from_json(value)
        return record

    def prove(
        self,
        name: str,
        version: int,
        content: str,
        newer: Mapping[int, str] | None = None,
    ) -> None:
        """Record the version that serves from now on, unless it was refused meanwhile.

        `newer` are the contents of newer versions, which a lost record may have
        refused: they are refused in its place.
        """
        proven = Recorded(version, content)
        unknown = {
            number: Refusal(each, LOST) for number, each in (newer or {}).items()
        }

        def change(record: Record) -> Record:
            refusal = record.refused.get(version)
            if refusal is not None and refusal.content == content:
                return record
            forced = None if record.forced == proven else record.forced
            before = unknown if record.is_lost else {}
            refused = _without({**before, **record.refused}, version)
            return Record(proven, refused, forced)

        self._change(name, change)

    def refuse(self, name: str, version: int, content: str, reason: str) -> None:
        """Record that a version is not promoted until its files change.

        One that was proven meanwhile is not refused.
        """
        refusal = Refusal(content, reason)

        def change(record: Record) -> Record:
            if record.proven == Recorded(version, content):
                return record
            return replace(record, refused={**record.refused, version: refusal})

        self._change(name, change)

    def retry(self, name: str, version: int) -> None:
        """Forget why a version was refused, so that it has to prove itself again."""

        def change(record: Record) -> Record:
            return replace(record, refused=_without(record.refused, version))

        self._change(name, change)

    def force(
        self, name: str, version: int, content: str, newer: Mapping[int, str]
    ) -> None:
        """Record a version that is promoted without a proof.

        `newer` are the contents of all newer versions, which are refused.
        """
        reason = f"version {version} was promoted by force"
        refused = {number: Refusal(each, reason) for number, each in newer.items()}

        def change(record: Record) -> Record:
            kept = _without(record.refused, version)
            forced = Recorded(version, content)
            return replace(record, refused={**kept, **refused}, forced=forced)

        self._change(name, change)

    def _change(self, name: str, change: "_Change") -> None:
        changes = [*self._unwritten.get(name, ()), change]
        try:
            self._write(name, changes)
        except OSError as error:
            if not self._keeps_unwritten:
                raise
            self._warn(name, error)
            self._unwritten[name] = changes

    def _write(self, name: str, changes: "Sequence[_Change]") -> None:
        """Change the record as it is now, which other processes may have changed."""
        with self._files.locked(name):
            before = self._read(name)
            after = _changed(before, changes)
            if after != before:
                self._files.set(name, _to_json(after))
        self._unwritten.pop(name, None)

    def _warn(self, name: str, error: Exception) -> None:
        """Log why a record can't be used, unless that was the last reason."""
        reason = getattr(error, "strerror", None) or str(error)
        if self._warned.get(name) != reason:
            self._warned[name] = reason
            _log.error("the record of model %s can't be used: %s", name, reason)


_Change = Callable[[Record], Record]


def _changed(record: Record, changes: Sequence[_Change]) -> Record:
    for change in changes:
        record = change(record)
    return record


def _without(refused: Mapping[int, Refusal], version: int) -> dict[int, Refusal]:
    return {number: each for number, each in refused.items() if number != version}


def _to_json(record: Record) -> dict[str, Any]:
    return {
        "proven": record.proven and [record.proven.version, record.proven.content],
        "refused": {
            str(number): [each.content, each.reason]
            for number, each in record.refused.items()
        },
        "forced": record.forced and [record.forced.version, record.forced.content],
        "is_lost": record.is_lost,
    }


def _from_json(value: Any) -> Record:
    """Return the record that `_to_json` has made this of, or raise ValueError."""
    try:
        refused = {
            int(number): Refusal(str(content), str(reason))
            for number, (content, reason) in value["refused"].items()
        }
        proven, forced = _recorded(value["proven"]), _recorded(value["forced"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("it is no record of versions") from error
    # Older records do not say it.
    return Record(proven, refused, forced, bool(value.get("is_lost")))


def _recorded(value: Any) -> Recorded | None:
    if value is None:
        return None
    version, content = value
    return Recorded(int(version), str(content))
