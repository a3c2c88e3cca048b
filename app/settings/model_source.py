"""BASKET_MODEL: one file or folder, wherever it lies, that is served as a model."""

import os
from dataclasses import dataclass
from pathlib import Path

from app.errors import SettingsError
from app.settings import Settings, checks
from app.settings.model_config import FILE_NAME
from app.settings.model_files import (
    MODEL_FILES,
    MODEL_SUFFIXES,
    is_version,
    lone_model_file,
    model_file,
    other_file,
)

_EXPECTED = (
    f"expected a {', '.join(MODEL_SUFFIXES[:-1])} or {MODEL_SUFFIXES[-1]} file, the "
    "folder of a SavedModel, or a folder of version folders such as 1"
)


@dataclass(frozen=True)
class ModelSource:
    """What BASKET_MODEL names at the moment.

    `version` is a file or the folder of a version, None if `folder` has version
    folders. basket.toml is read from `folder`. A version is absolute, so that errors of
    engines, which leave out its folder, do so.
    """

    version: Path | None
    folder: Path


def check(settings: Settings) -> None:
    """Check BASKET_MODEL, its name and its file at the start.

    Raises:
        SettingsError: the text says what is wrong and what is expected.
    """
    if settings.model is None:
        return
    name = name_of(settings)
    try:
        find_model(settings.model)
    except SettingsError as error:
        raise SettingsError(f"{_shown(settings.model)}: {error}") from error
    if settings.default_model not in (None, name):
        raise SettingsError(
            f"BASKET_DEFAULT_MODEL={settings.default_model!r}: BASKET_MODEL serves one "
            f"model, and its name is {name!r}"
        )


def name_of(settings: Settings) -> str:
    """Return the name of the model of BASKET_MODEL.

    Raises:
        SettingsError: the file's name can't be one, and BASKET_MODEL_NAME is not set.
    """
    assert settings.model is not None
    if settings.model_name is not None:
        return settings.model_name
    path = _absolute(settings.model)
    if is_version(path.name):
        path = path.parent
    name = path.stem if path.suffix in MODEL_SUFFIXES else path.name
    try:
        return checks.model_name(name)
    except ValueError as error:
        raise SettingsError(
            f"{_shown(settings.model)}: {name!r} can't be the name of a model: set "
            "BASKET_MODEL_NAME"
        ) from error


def find_model(path: Path) -> ModelSource:
    """Return the model at a path.

    Raises:
        SettingsError: there is none, or it can't be read; without the path, as clients
            may read the text.
    """
    try:
        found = _model_at(_absolute(path))
    except OSError as error:
        raise SettingsError(f"{error.strerror}; {_EXPECTED}") from error
    except ValueError as error:
        raise SettingsError(f"{error}; {_EXPECTED}") from error
    # Problems of version folders show the path as the operator wrote it.
    return found if found.version else ModelSource(None, path)


def _model_at(path: Path) -> ModelSource:
    # Also raises for a path that does not exist, or is no file or folder.
    if not os.path.isdir(path):
        # Whether a .weights.h5 file holds a model shows only when it is read.
        is_model = path.suffix in MODEL_SUFFIXES and os.path.isfile(path)
        if os.path.exists(path) and not is_model:
            is_part = path.name in MODEL_FILES
            what = other_file(path) or "is another file"
            raise ValueError("name its folder" if is_part else f"it {what}")
        path.open("rb").close()
        return ModelSource(path, path.parent)
    names = sorted(os.listdir(path))
    if model_file(path) is not None:
        has_config = FILE_NAME in names
        return ModelSource(path, path if has_config else path.parent)
    if any(is_version(name) and os.path.isdir(path / name) for name in names):
        return ModelSource(None, path)
    file = lone_model_file(path)
    if file is None:
        for name in names:
            if what := other_file(path / name):
                raise ValueError(f"{name} {what}")
        raise ValueError("it holds no model; a folder of models is BASKET_MODEL_DIR")
    return ModelSource(path / file, path)


def _absolute(path: Path) -> Path:
    # Links are not followed: their names, such as `current`, are the operator's.
    return Path(os.path.abspath(path))


def _shown(path: Path) -> str:
    return f"BASKET_MODEL={str(path)!r}"
