"""Which versions of a model are to be loaded, and what is wrong with its folder."""

from collections.abc import Collection, Iterator

from app.errors import SettingsError
from app.repository.rollouts.standing import Standing
from app.repository.scan import ModelFolder
from app.settings.model_config import ModelConfig


def usable(config: ModelConfig | SettingsError) -> ModelConfig | SettingsError:
    """Return a configuration, or the error for one that this server can't follow."""
    if isinstance(config, SettingsError) or config.promotion is None:
        return config
    if config.settings.capture_dir is None and not config.traffic:
        return SettingsError(
            "basket.toml: [promotion] needs BASKET_CAPTURE_DIR, where the server keeps "
            "which version was proven"
        )
    return config


def wanted(
    loadable: Collection[int], standing: Standing, config: ModelConfig
) -> list[int]:
    """Return the versions to load, those with the most traffic first."""
    unlabeled = standing.serving, standing.candidate
    weights = {version: 0.0 for version in unlabeled if version is not None}
    for label, version in config.labels.items():
        if version in loadable:
            weight = config.traffic.get(label, 0.0)
            weights[version] = weights.get(version, 0.0) + weight
    return sorted(
        weights,
        key=lambda version: (-weights[version], version != standing.serving, -version),
    )


def problems(
    folder: ModelFolder, config: ModelConfig, standing: Standing
) -> Iterator[str]:
    """Yield what is wrong with a model's folder and its basket.toml."""
    for label, version in config.labels.items():
        if folder.versions and version not in folder.versions:
            yield f"label {label} names version {version}, and there is none"
        if version in standing.refused:  # else it is not loaded
            yield f"version {version} is not promoted: {standing.refused[version]}"
    yield from folder.warnings
    if config.capture and config.settings.capture_dir is None:
        yield "[capture] in basket.toml has no effect: BASKET_CAPTURE_DIR is not set"
