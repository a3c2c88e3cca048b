"""What operators decide on versions with [promotion]: promote one, or send it back.

Servers read the record of these decisions, and follow within two seconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import (
    BadInput,
    ModelLoadError,
    NotReady,
    NotYetLoadable,
    SettingsError,
    Unavailable,
    UnknownModel,
)
from app.promotion.record import Recorded, Records
from app.repository.find_version import Found, find_version
from app.repository.rollouts.standing import digest_of
from app.repository.scan import fingerprint
from app.settings import Settings


def retry(settings: Settings, name: str, version: int) -> str:
    """Have a version that was refused prove itself again; return why it was.

    Raises:
        UnknownModel: there is no such version.
        BadInput: it was not refused, or the model has no promotion.
        NotReady: the model is being written, or can't be read.
        Unavailable: the record can't be written.
    """
    _find(settings, name, version)
    with _records(settings) as records:
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
        UnknownModel, BadInput, NotReady, Unavailable: as `retry`.
    """
    versions = _find(settings, name, version).versions
    newer = {
        number: _content(path) for number, path in versions.items() if number > version
    }
    with _records(settings) as records:
        records.force(name, version, _content(versions[version]), newer)
    return sorted(newer)


def send_back(settings: Settings, name: str, version: int, reason: str) -> None:
    """Refuse a version, in its rollout or before it.

    Raises:
        UnknownModel, BadInput, NotReady, Unavailable: as `retry`; BadInput also for a
            version that was proven or promoted by force, and where none was.
    """
    content = _content(_find(settings, name, version).path)
    this = Recorded(version, content)
    words = "it was sent back by hand"
    with _records(settings) as records:
        if records.of(name).proven is None:
            raise BadInput(f"no version of {name!r} was proven yet: none could serve")
        if records.of(name).forced != this:
            words = f"{words}: {reason}" if reason else words
            records.refuse(name, version, content, words)
        record = records.of(name)
    if this in (record.proven, record.forced):
        raise BadInput(
            f"version {version} of {name!r} serves for good: promote another one by "
            "force"
        )


def _find(settings: Settings, name: str, version: int) -> Found:
    try:
        found = find_version(settings, name, version)
    except NotYetLoadable as error:
        raise NotReady(str(error)) from error
    except ModelLoadError as error:
        raise UnknownModel(str(error)) from error
    except SettingsError as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        raise NotReady(f"model {name!r} can't be read: {error.strerror}") from error
    if found.config.promotion is None:
        raise BadInput(
            f"basket.toml of {name!r} has no [promotion]: its newest version serves "
            "as soon as it is loaded"
        )
    return found


def _content(path: Path) -> str:
    try:
        return digest_of(path, fingerprint(path))
    except OSError as error:
        raise NotReady(f"{path.name} can't be read: {error.strerror}") from error


@contextmanager
def _records(settings: Settings) -> Iterator[Records]:
    """Open the records for a change."""
    place = settings.capture_dir
    if place is None:
        raise BadInput("[promotion] needs BASKET_CAPTURE_DIR, as the server has it")
    try:
        yield Records(place, keeps_unwritten=False)
    except OSError as error:
        raise Unavailable(f"BASKET_CAPTURE_DIR={place}: {error.strerror}") from error
