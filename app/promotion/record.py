"""What is known of a model's versions beyond a restart: proven, refused, forced.

The record is a JSON file for each model, in `.promotions` of BASKET_CAPTURE_DIR. A
version is recorded with a digest of its files: other files under its number are another
version.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.run_dir.json_files import JsonFiles

_log = logging.getLogger(__name__)
# A model's name does not begin with a dot.
_FOLDER = ".promotions"


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
    is to be promoted without a proof.
    """

    proven: Recorded | None = None
    refused: Mapping[int, Refusal] = field(default_factory=dict)
    forced: Recorded | None = None


class Records:
    """The records of all models; processes change them one at a time.

    On a full disk each process goes by what it knows.
    """

    def __init__(
        self, capture_dir: Path | None, *, keeps_unwritten: bool = True
    ) -> None:
        """Store the folder; None: in this process's memory.

        Without `keeps_unwritten`, changes raise OSError if they can't be written.
        """
        self._keeps_unwritten = keeps_unwritten
        folder = None if capture_dir is None else capture_dir / _FOLDER
        self._files = JsonFiles(folder)
        # Records that could not be written, those that were read last, and the reasons
        # that were logged.
        self._unwritten: dict[str, Record] = {}
        self._last: dict[str, Record] = {}
        self._warned: dict[str, str] = {}

    def of(self, name: str) -> Record:
        """Return a model's record, an empty one if the file is damaged or foreign.

        Of a file that can't be read or written this process knows the last record.
        """
        if name in self._unwritten:
            return self._unwritten[name]
        try:
            value = self._files.get(name) or {}
        except (OSError, ValueError) as error:
            self._warn(name, error)
            return self._last.get(name, Record())
        try:
            self._last[name] = record = _from_json(value)
        except (ValueError, TypeError, AttributeError) as error:
            self._warn(name, error)
            return Record()
        self._warned.pop(name, None)
        return record

    def prove(self, name: str, version: int, content: str) -> None:
        """Record the version that serves from now on."""
        proven = Recorded(version, content)

        def change(record: Record) -> Record:
            forced = None if record.forced == proven else record.forced
            return Record(proven, _without(record.refused, version), forced)

        self._change(name, change)

    def refuse(self, name: str, version: int, content: str, reason: str) -> None:
        """Record that a version is not promoted until its files change."""
        refusal = Refusal(content, reason)

        def change(record: Record) -> Record:
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
            return Record(record.proven, {**kept, **refused}, forced)

        self._change(name, change)

    def _change(self, name: str, change: Callable[[Record], Record]) -> None:
        after = change(self.of(name))
        try:
            with self._files.locked(name):
                before = self.of(name)
                after = change(before)
                if after != before or name in self._unwritten:
                    self._files.set(name, _to_json(after))
        except OSError as error:
            if not self._keeps_unwritten:
                raise
            self._warn(name, error)
            self._unwritten[name] = after
        else:
            self._unwritten.pop(name, None)

    def _warn(self, name: str, error: Exception) -> None:
        """Log why a record can't be used, unless that was the last reason."""
        reason = getattr(error, "strerror", None) or str(error)
        if self._warned.get(name) != reason:
            self._warned[name] = reason
            _log.error("the record of model %s can't be used: %s", name, reason)


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
    }


def _from_json(value: Mapping[str, Any]) -> Record:
    return Record(
        _recorded(value.get("proven")),
        {
            int(number): Refusal(str(content), str(reason))
            for number, (content, reason) in value.get("refused", {}).items()
        },
        _recorded(value.get("forced")),
    )


def _recorded(value: Any) -> Recorded | None:
    if value is None:
        return None
    version, content = value
    return Recorded(int(version), str(content))
