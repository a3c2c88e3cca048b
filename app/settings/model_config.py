"""What a model's basket.toml says, over the server's settings."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from app.settings import Settings, batching_limits, checks
from app.settings.image_config import ImageConfig, read_image_config

FILE_NAME = "basket.toml"
# Settings of the server that a model may set for itself.
_OWN_SETTINGS = ("max_batch_size", "batch_timeout_micros", "allowed_batch_sizes")
_TABLES = ("labels", "traffic", "image")


@dataclass(frozen=True)
class ModelConfig:
    """One model's configuration.

    `settings` are the server's, with the model's own batching limits in them;
    `labels` name versions; `traffic` gives labels their weights; `image` is what a
    picture becomes, None for a model that takes no pictures.
    """

    settings: Settings
    labels: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str, float] = field(default_factory=dict)
    image: ImageConfig | None = None


def read_model_config(folder: Path, settings: Settings) -> ModelConfig:
    """Read <folder>/basket.toml, all of which is optional, the file too.

    Raises:
        SettingsError: not TOML, an unknown key, or a value that can't be.
    """
    try:
        values = tomllib.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        # Raises for a number, given as hex, of more digits than an error could show.
        repr(values)
    except FileNotFoundError:
        return ModelConfig(settings)
    except OSError as error:
        raise SettingsError(f"{FILE_NAME}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # too many digits, or brackets, too
        raise SettingsError(f"{FILE_NAME}: {error}") from error
    known = (*_OWN_SETTINGS, *_TABLES)
    for key in values:
        if key not in known:
            raise SettingsError(
                f"{FILE_NAME}: unknown key {checks.shown(key)}; known: "
                f"{', '.join(known)}"
            )
    labels = _labels(_table(values, "labels"))
    traffic = _traffic(_table(values, "traffic"), labels)
    image = None
    if "image" in values:
        image = read_image_config(_table(values, "image"), folder)
    return ModelConfig(_with_own(settings, values), labels, traffic, image)


def _with_own(settings: Settings, values: Mapping[str, Any]) -> Settings:
    own = {key: values[key] for key in _OWN_SETTINGS if key in values}
    try:
        return replace(settings, **batching_limits(own))
    except SettingsError as error:
        raise SettingsError(f"{FILE_NAME}: {error}") from error


def _table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = values.get(name, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{FILE_NAME}: {name} must be a table: [{name}]")
    return table


def _labels(table: dict[str, Any]) -> dict[str, int]:
    for label, version in table.items():
        if not label or set(label) & set("/:"):
            raise SettingsError(
                f"{FILE_NAME}: [labels] {checks.shown(label)}: a label has neither / "
                "nor : in it"
            )
        if type(version) is not int or version < 0:
            raise SettingsError(
                f"{FILE_NAME}: [labels] {label} = {checks.shown(version)}: expected "
                "the number of a version"
            )
    return table


def _traffic(table: dict[str, Any], labels: Mapping[str, int]) -> dict[str, float]:
    for label, weight in table.items():
        if label not in labels:
            raise SettingsError(
                f"{FILE_NAME}: [traffic] {label}: there is no such label in [labels]"
            )
        # The last comparison refuses NaN and infinity.
        if type(weight) not in (int, float) or not 0 <= weight <= 1e9:  # noqa: PLR2004
            raise SettingsError(
                f"{FILE_NAME}: [traffic] {label} = {checks.shown(weight)}: expected a "
                "weight, 0 or more"
            )
    if table and not any(table.values()):
        raise SettingsError(f"{FILE_NAME}: [traffic] has no weight above 0")
    return table
