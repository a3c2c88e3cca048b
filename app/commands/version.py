"""Finds the version that a command works on."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from app.errors import ModelLoadError, SettingsError
from app.repository.single_model import scanner
from app.settings import Settings
from app.settings.model_config import ModelConfig
from app.settings.model_files import KERAS_FILES, MAX_VERSION

_SUFFIXES = [Path(name).suffix for name in KERAS_FILES]
_NAMES = f"{', '.join(KERAS_FILES[:-1])} or {KERAS_FILES[-1]}"


class Found(NamedTuple):
    """A version, its folder or file, and its model's configuration."""

    number: int
    path: Path
    config: ModelConfig


def find_version(settings: Settings, name: str, version: int | None) -> Found:
    """Return a version of a model; None is the newest.

    Raises:
        ModelLoadError: no such model or version.
        SettingsError: the model's basket.toml is wrong.
    """
    models = scanner(settings)()
    if name not in models:
        known = ", ".join(models) or "none"
        raise ModelLoadError(f"no model {name!r}; there are: {known}")
    model = models[name]
    if model.is_incomplete:
        raise ModelLoadError(f"model {name!r} is being written: try again in a second")
    if version is None and model.versions:
        version = max(model.versions)
    if version is None or version not in model.versions:
        known = ", ".join(str(each) for each in sorted(model.versions)) or "none"
        named = "" if version is None else f" {version}"
        raise ModelLoadError(f"model {name!r} has no version{named}; it has: {known}")
    if isinstance(model.config, SettingsError):
        raise model.config
    return Found(version, model.versions[version], model.config)


def versions_of(settings: Settings, name: str) -> Mapping[int, Path]:
    """Return the paths of a model's versions; it is one that `find_version` finds."""
    return scanner(settings)()[name].versions


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
