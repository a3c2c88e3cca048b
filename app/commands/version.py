"""Finds the version that a command works on."""

from pathlib import Path

from app.errors import ModelLoadError, SettingsError
from app.repository.scan import scan
from app.settings import Settings
from app.settings.model_config import ModelConfig

_KERAS_FILES = ("model.keras", "model.h5")


def find_version(
    settings: Settings, name: str, version: int | None
) -> tuple[Path, ModelConfig]:
    """Return a version's folder and its model's configuration; None is the newest.

    Raises:
        ModelLoadError: no such model or version.
        SettingsError: the model's basket.toml is wrong.
    """
    models = scan(settings.model_dir, settings)
    if name not in models:
        known = ", ".join(models) or "none"
        raise ModelLoadError(f"no model {name!r}; there are: {known}")
    model = models[name]
    if version is None and model.versions:
        version = max(model.versions)
    if version is None or version not in model.versions:
        known = ", ".join(str(each) for each in sorted(model.versions)) or "none"
        named = "" if version is None else f" {version}"
        raise ModelLoadError(f"model {name!r} has no version{named}; it has: {known}")
    if isinstance(model.config, SettingsError):
        raise model.config
    return model.versions[version], model.config


def keras_file(folder: Path, done: str) -> Path:
    """Return the Keras file of a version; `done` is the participle for the error text.

    Raises:
        ModelLoadError: the version holds none.
    """
    for name in _KERAS_FILES:
        if (folder / name).is_file():
            return folder / name
    raise ModelLoadError(
        f"version {folder.name} holds no {' or '.join(_KERAS_FILES)}: only Keras files "
        f"are {done}"
    )


def next_version(settings: Settings, name: str) -> Path:
    """Return the folder for a model's next version: its newest number plus one."""
    versions = scan(settings.model_dir, settings)[name].versions
    return settings.model_dir / name / str(max(versions, default=0) + 1)
