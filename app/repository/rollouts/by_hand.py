"""What operators decide on versions with [promotion]: promote one, or send it back.

Servers read the record of these decisions each second, and follow.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import (
    BadInput,
    ModelLoadError,
    SettingsError,
    Unavailable,
    UnknownModel,
)
from app.promotion.record import Recorded, Records
from app.repository.find_version import find_version, versions_of
from app.repository.rollouts.standing import digest_of
from app.repository.scan import fingerprint
from app.settings import Settings


def retry(settings: Settings, name: str, version: int) -> str:
    """Have a version that was refused prove itself again; return why it was.

    Raises:
        UnknownModel: there is no such version.
        BadInput: it was not refused, or the model has no promotion.
        Unavailable: the record can't be written.
    """
    with _records(settings, name, version) as records:
        refused = records.of(name).refused.get(version)
        if refused is None:
            raise BadInput(
                f"version {version} of {name!r} was not refused; by force it takes "
                "over without a proof"
            )
        records.retry(name, version)
        return refused.reason


def force(settings: Settings, name: str, version: int) -> list[int]:
    """Have a version take over without a proof; return newer ones, refused by that.

    Raises:
        UnknownModel, BadInput, Unavailable: as `retry`.
    """
    with _records(settings, name, version) as records:
        contents = {
            number: _content(path)
            for number, path in versions_of(settings, name).items()
            if number >= version
        }
        content = contents.pop(version)
        records.force(name, version, content, contents)
        return sorted(contents)


def send_back(settings: Settings, name: str, version: int, reason: str) -> None:
    """Refuse a version, in its rollout or before it.

    Raises:
        UnknownModel, BadInput, Unavailable: as `retry`; BadInput also for a version
            that was proven or promoted by force, and where none was.
    """
    with _records(settings, name, version) as records:
        record = records.of(name)
        content = _content(versions_of(settings, name)[version])
        if record.proven is None:
            raise BadInput(f"no version of {name!r} was proven yet: none could serve")
        if Recorded(version, content) in (record.proven, record.forced):
            raise BadInput(
                f"version {version} of {name!r} serves for good: promote another one "
                "by force"
            )
        words = "it was sent back by hand"
        records.refuse(
            name, version, content, f"{words}: {reason}" if reason else words
        )


def _content(path: Path) -> str:
    return digest_of(path, fingerprint(path))


@contextmanager
def _records(settings: Settings, name: str, version: int) -> Iterator[Records]:
    """Open the records for a change that is about a version."""
    try:
        found = find_version(settings, name, version)
    except ModelLoadError as error:
        raise UnknownModel(str(error)) from error
    except SettingsError as error:
        raise BadInput(str(error)) from error
    if found.config.promotion is None:
        raise BadInput(
            f"basket.toml of {name!r} has no [promotion]: its newest version serves "
            "as soon as it is loaded"
        )
    if settings.capture_dir is None:
        raise BadInput("[promotion] needs BASKET_CAPTURE_DIR, as the server has it")
    try:
        yield Records(settings.capture_dir, keeps_unwritten=False)
    except OSError as error:
        place = settings.capture_dir
        raise Unavailable(f"BASKET_CAPTURE_DIR={place}: {error.strerror}") from error
