"""What a model's basket.toml says, over the server's settings."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from app.settings import Settings, parse_setting

FILE_NAME = "basket.toml"
# Settings of the server that a model may set for itself.
_OWN_SETTINGS = ("max_batch_size", "batch_timeout_micros")
_TABLES = ("labels", "traffic")


@dataclass(frozen=True)
class ModelConfig:
    """One model's configuration.

    `settings` are the server's, with the model's own batching limits in them;
    `labels` name versions; `traffic` gives labels their weights.
    """

    settings: Settings
    labels: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str, float] = field(default_factory=dict)


def read_model_config(folder: Path, settings: Settings) -> ModelConfig:
    """Read <folder>/basket.toml, all of which is optional, the file too.

    Raises:
        SettingsError: not TOML, an unknown key, or a value that can't be.
    """
    try:
        values = tomllib.loads((folder / FILE_NAME).read_text())
    except FileNotFoundError:
        return ModelConfig(settings)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{FILE_NAME}: {error}") from error
    known = (*_OWN_SETTINGS, *_TABLES)
    own: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise SettingsError(
                f"{FILE_NAME}: unknown key {key!r}; known: {', '.join(known)}"
            )
        if key in _OWN_SETTINGS:
            own[key] = _own_setting(key, value)
    labels = _labels(_table(values, "labels"))
    traffic = _traffic(_table(values, "traffic"), labels)
    return ModelConfig(replace(settings, **own), labels, traffic)


def _own_setting(key: str, value: object) -> object:
    try:
        return parse_setting(key, str(value))
    except ValueError as error:
        raise SettingsError(f"{FILE_NAME}: {key} = {value!r}: {error}") from error


def _table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = values.get(name, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{FILE_NAME}: {name} must be a table: [{name}]")
    return table


def _labels(table: dict[str, Any]) -> dict[str, int]:
    for label, version in table.items():
        if not label or set(label) & set("/:"):
            raise SettingsError(
                f"{FILE_NAME}: [labels] {label!r}: a label has neither / nor : in it"
            )
        if type(version) is not int or version < 0:
            raise SettingsError(
                f"{FILE_NAME}: [labels] {label} = {version!r}: expected the number of "
                "a version"
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
                f"{FILE_NAME}: [traffic] {label} = {weight!r}: expected a weight, 0 or "
                "more"
            )
    if table and not any(table.values()):
        raise SettingsError(f"{FILE_NAME}: [traffic] has no weight above 0")
    return table
