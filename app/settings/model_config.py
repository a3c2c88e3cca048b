"""A model's configuration: its basket.toml, over the server's settings."""

import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from app.settings import Settings, checks, file_settings
from app.settings.image_config import ImageConfig, read_image_config
from app.settings.model_files import MAX_VERSION
from app.settings.promotion_config import PromotionConfig, read_promotion
from app.settings.tables import number, read_table

FILE_NAME = "basket.toml"
# Settings of the server that a model may override.
OWN_SETTINGS = (
    *("max_batch_size", "batch_timeout_micros", "allowed_batch_sizes"),
    *("engine", "constants"),
)
_TABLES = ("labels", "traffic", "image", "capture", "promotion")


@dataclass(frozen=True)
class CaptureConfig:
    """Which of a model's requests are captured: a share of all, and how many are kept.

    The files of the model take at most `keep_mb` million bytes.
    """

    share: float = 0.01
    keep_mb: int = 100


@dataclass(frozen=True)
class ModelConfig:
    """One model's configuration.

    `settings` are the server's, with the model's own limits, engine and constants;
    `labels` name versions; `traffic` has the weights of labels; `image` is None for a
    model that takes no images, `capture` for one whose requests are not captured,
    `promotion` for one whose newest version serves as soon as it is loaded.
    """

    settings: Settings
    labels: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str, float] = field(default_factory=dict)
    image: ImageConfig | None = None
    capture: CaptureConfig | None = None
    promotion: PromotionConfig | None = None


def read_model_config(folder: Path, settings: Settings) -> ModelConfig:
    """Read <folder>/basket.toml; the file and all its keys are optional.

    Raises:
        SettingsError: not TOML, an unknown key, or an invalid value.
    """
    try:
        values = tomllib.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        # Raises ValueError for a hexadecimal number with too many digits to print.
        repr(values)
    except FileNotFoundError:
        return ModelConfig(settings)
    except OSError as error:
        raise SettingsError(f"{FILE_NAME}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also too many digits or brackets
        raise SettingsError(f"{FILE_NAME}: {error}") from error
    known = (*OWN_SETTINGS, *_TABLES)
    for key in values:
        if key not in known:
            raise SettingsError(
                f"{FILE_NAME}: unknown key {checks.shown(key)}; known: "
                f"{', '.join(known)}"
            )
    labels = _labels(_table(values, "labels"))
    traffic = _table(values, "traffic")
    try:
        check_traffic(traffic, labels)
    except ValueError as error:
        raise SettingsError(f"{FILE_NAME}: [traffic] {error}") from error
    image = None
    if "image" in values:
        image = read_image_config(_table(values, "image"), folder)
    capture = _capture(_table(values, "capture")) if "capture" in values else None
    promotion = None
    if "promotion" in values:
        promotion = read_promotion(_table(values, "promotion"))
    own = _with_own(settings, values)
    return ModelConfig(own, labels, traffic, image, capture, promotion)


def config_files(folder: Path) -> set[str]:
    """Return basket.toml and what it names, such as its classes, if it can be read."""
    names = {FILE_NAME}
    with suppress(OSError, ValueError, RecursionError):
        values = tomllib.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        tables = [each for each in values.values() if isinstance(each, dict)]
        found = [value for table in tables for value in table.values()]
        names.update(value for value in found if isinstance(value, str))
    return names


def _with_own(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return the settings with the model's own.

    With max_batch_size alone, the server's smaller allowed_batch_sizes stay, and it is
    the last of them.
    """
    own = {key: values[key] for key in OWN_SETTINGS if key in values}
    try:
        found = file_settings(own)
        most = found.get("max_batch_size")
        if most and settings.allowed_batch_sizes and "allowed_batch_sizes" not in own:
            smaller = (size for size in settings.allowed_batch_sizes if size < most)
            found["allowed_batch_sizes"] = (*smaller, most)
        return replace(settings, **found)
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
        if type(version) is not int or not 0 <= version <= MAX_VERSION:
            raise SettingsError(
                f"{FILE_NAME}: [labels] {label} = {checks.shown(version)}: expected "
                "the number of a version"
            )
    return table


def _capture(table: dict[str, Any]) -> CaptureConfig | None:
    """Return the table's values; None: a share of 0."""
    capture = CaptureConfig(**read_table("capture", table, _CAPTURE))
    return capture if capture.share else None


_CAPTURE: Mapping[str, Callable[[object], float]] = {
    "share": number(0, 1),
    "keep_mb": checks.whole(1, 1_000_000),
}


def check_traffic(weights: Mapping[str, Any], labels: Mapping[str, int]) -> None:
    """Check a traffic split: weights by label, of which one or more are above 0.

    Raises:
        ValueError: a label is unknown, or a weight is none; the text names it.
    """
    for label, weight in weights.items():
        if label not in labels:
            raise ValueError(f"{label}: there is no such label in [labels]")
        # The comparison refuses NaN and infinity too.
        if type(weight) not in (int, float) or not 0 <= weight <= 1e9:  # noqa: PLR2004
            raise ValueError(
                f"{label} = {checks.shown(weight)}: expected a weight, 0 or more"
            )
    if weights and not any(weights.values()):
        raise ValueError("has no weight above 0")
