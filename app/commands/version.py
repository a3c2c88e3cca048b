"""The version that a command is about."""

from pathlib import Path

from app.errors import ModelLoadError, SettingsError
from app.serving.repository import scan
from app.settings import Settings
from app.settings.model_config import ModelConfig


def find_version(
    settings: Settings, name: str, version: int | None
) -> tuple[Path, ModelConfig]:
    """The folder of a version, None: the newest, and its model's configuration.

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
        wanted = "" if version is None else f" {version}"
        raise ModelLoadError(f"model {name!r} has no version{wanted}; it has: {known}")
    if isinstance(model.config, SettingsError):
        raise model.config
    return model.versions[version], model.config
