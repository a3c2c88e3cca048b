"""Files and numbers of the versions that commands read and write."""

from pathlib import Path

from app.errors import ModelLoadError
from app.repository.find_version import Found, versions_of
from app.settings import Settings
from app.settings.model_files import KERAS_FILES, MAX_VERSION

_SUFFIXES = [Path(name).suffix for name in KERAS_FILES]
_NAMES = f"{', '.join(KERAS_FILES[:-1])} or {KERAS_FILES[-1]}"


def keras_file(found: Found, done: str) -> Path:
    """Return the Keras file of a version; `done` is the participle for the error text.

    Raises:
        ModelLoadError: the version holds none.
    """
    if found.path.is_file() and found.path.suffix in _SUFFIXES:
        return found.path
    for name in KERAS_FILES:
        if (found.path / name).is_file():
            return found.path / name
    raise ModelLoadError(
        f"version {found.number} holds no {_NAMES}: only Keras files are {done}"
    )


def next_version(settings: Settings, name: str) -> Path:
    """Return the folder for a model's next version: its newest number plus one.

    Raises:
        ModelLoadError: BASKET_MODEL is set, which is no folder for versions, or no
            version has a higher number.
    """
    if settings.model is not None:
        raise ModelLoadError(
            "BASKET_MODEL has no place for another version: put it into a folder "
            "NAME/1 and set BASKET_MODEL_DIR instead"
        )
    number = max(versions_of(settings, name), default=0) + 1
    if number > MAX_VERSION:
        raise ModelLoadError(
            f"model {name!r} has version {MAX_VERSION}, the highest number there is: "
            "rename its folder to a lower one"
        )
    return settings.model_dir / name / str(number)
