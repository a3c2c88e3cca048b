"""Finds a version among the files, for what works on it outside of a catalog."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from app.errors import ModelLoadError, NotYetLoadable, SettingsError
from app.repository.single_model import scanner
from app.settings import Settings
from app.settings.model_config import ModelConfig


class Found(NamedTuple):
    """A version, its folder or file, its model's configuration and other versions."""

    number: int
    path: Path
    config: ModelConfig
    versions: Mapping[int, Path]


def find_version(settings: Settings, name: str, version: int | None) -> Found:
    """Return a version of a model; None is the newest.

    Raises:
        ModelLoadError: no such model or version.
        NotYetLoadable: the model is being written.
        SettingsError: the model's basket.toml is wrong.
    """
    models = scanner(settings)()
    if name not in models:
        known = ", ".join(models) or "none"
        raise ModelLoadError(f"no model {name!r}; there are: {known}")
    model = models[name]
    if model.is_incomplete:
        raise NotYetLoadable(f"model {name!r} is being written: try again in a second")
    if version is None and model.versions:
        version = max(model.versions)
    if version is None or version not in model.versions:
        known = ", ".join(str(each) for each in sorted(model.versions)) or "none"
        named = "" if version is None else f" {version}"
        raise ModelLoadError(f"model {name!r} has no version{named}; it has: {known}")
    if isinstance(model.config, SettingsError):
        raise model.config
    return Found(version, model.versions[version], model.config, model.versions)


def versions_of(settings: Settings, name: str) -> Mapping[int, Path]:
    """Return the paths of a model's versions; it is one that `find_version` finds."""
    return scanner(settings)()[name].versions
