"""Every knob, read once from BASKET_*; a bad value stops the start by its name."""

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from app.settings import checks

_PREFIX = "BASKET_"
# Lists, which have no variable: they stand in basket.toml and the batching file.
_ONLY_IN_FILES = ("allowed_batch_sizes",)
_FILE_VARIABLE = "BASKET_BATCHING_PARAMETERS_FILE"


@dataclass(frozen=True)
class Settings:
    """One field for each knob; the README's table says what each is for."""

    model_dir: Path = Path("models")
    default_model: str | None = None
    engine: str = "tensorflow"
    batching: bool = True
    max_batch_size: int = 64
    # None: the adaptive rule.
    batch_timeout_micros: int | None = None
    max_enqueued_batches: int = 16
    # Increasing; empty: a batch may have any size.
    allowed_batch_sizes: tuple[int, ...] = ()
    batching_parameters_file: Path | None = None
    gpu_memory_fraction: float | None = None
    # None: all of them.
    gpus: tuple[int, ...] | None = None
    model_process: str = "worker"
    request_timeout_ms: int = 30_000
    max_body_bytes: int = 64 * 1024 * 1024
    # Empty: no key is asked for. A secret, so kept out of every text.
    api_keys: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Hold TensorFlow Serving's rule on allowed_batch_sizes.

        Raises:
            SettingsError: their last is not max_batch_size.
        """
        sizes = self.allowed_batch_sizes
        if sizes and sizes[-1] != self.max_batch_size:
            raise SettingsError(
                f"the last of allowed_batch_sizes is {sizes[-1]} and max_batch_size is "
                f"{self.max_batch_size}: they must be equal"
            )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read all knobs; an empty value counts as not set.

        A variable goes before the batching file that another one names.

        Raises:
            SettingsError: a value that can't be; the text names the variable.
        """
        given: dict[str, Any] = {}
        for name, knob in variables().items():
            text = environ.get(name, "").strip()
            if not text:
                continue
            try:
                given[knob.name] = _PARSERS[knob.name](text)
            except ValueError as error:
                shown = f"={text!r}" if knob.repr else ""
                raise SettingsError(f"{name}{shown}: {error}") from error
        file = given.get("batching_parameters_file")
        try:
            limits = _limits_in(file) if file else {}
            made = cls(**{**limits, **given})
        except SettingsError as error:
            raise SettingsError(f"{_FILE_VARIABLE}={str(file)!r}: {error}") from error
        if not made.model_dir.is_dir():
            raise SettingsError(
                f"BASKET_MODEL_DIR is not set, and there is no folder {made.model_dir} "
                "here"
            )
        return made


def variables() -> dict[str, Field[Any]]:
    """The fields that have an environment variable, by its name."""
    return {
        _PREFIX + knob.name.upper(): knob
        for knob in fields(Settings)
        if knob.name not in _ONLY_IN_FILES
    }


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """One line for each BASKET_ variable that is no knob, with the nearest knob.

    These are worth a warning, not a refusal: Kubernetes sets BASKET_PORT and its
    like by itself in each pod beside a service called basket.
    """
    known = [name.removeprefix(_PREFIX) for name in variables()]
    lines = []
    for name in sorted(environ):
        rest = name.removeprefix(_PREFIX)
        if rest not in (name, *known):
            # Without the prefix: it alone would make all names look alike.
            near = difflib.get_close_matches(rest, known, n=1)
            hint = f"; did you mean {_PREFIX}{near[0]}?" if near else ""
            if rest.lower() in _ONLY_IN_FILES:
                hint = f": it stands in basket.toml or in {_FILE_VARIABLE}"
            lines.append(f"{name} is not a setting of Basket{hint}")
    return lines


def batching_limits(values: Mapping[str, object]) -> dict[str, Any]:
    """The fields for the batching limits that a file gives by their names.

    allowed_batch_sizes alone says max_batch_size too, which is their last.

    Raises:
        SettingsError: a value that can't be; the text names the limit.
    """
    limits: dict[str, Any] = {}
    for name, value in values.items():
        try:
            limits[name] = _LIMITS[name](value)
        except ValueError as error:
            raise SettingsError(f"{name} = {checks.shown(value)}: {error}") from error
    if limits.get("allowed_batch_sizes"):
        limits.setdefault("max_batch_size", limits["allowed_batch_sizes"][-1])
    return limits


def _limits_in(file: Path) -> dict[str, Any]:
    # Only where it is needed: protobuf takes 7 MiB.
    from app.settings import batching_parameters  # noqa: PLC0415

    return batching_limits(batching_parameters.read(file).limits)


_BATCH_SIZE = checks.whole(1, 1_000_000)
# What a file may say, in its own types.
_LIMITS: dict[str, Callable[[object], object]] = {
    "max_batch_size": _BATCH_SIZE,
    "batch_timeout_micros": checks.auto_or(checks.whole(0, 3_600_000_000)),
    "max_enqueued_batches": checks.whole(1, 1_000_000),
    "allowed_batch_sizes": checks.increasing(_BATCH_SIZE),
}
# The same and all others as text.
_PARSERS: dict[str, Callable[[str], object]] = {
    "model_dir": checks.folder,
    "default_model": checks.model_name,
    "engine": checks.engine,
    "batching": checks.switch,
    "max_batch_size": checks.as_text(_LIMITS["max_batch_size"]),
    "batch_timeout_micros": checks.as_text(_LIMITS["batch_timeout_micros"]),
    "max_enqueued_batches": checks.as_text(_LIMITS["max_enqueued_batches"]),
    "batching_parameters_file": Path,
    "gpu_memory_fraction": checks.fraction,
    "gpus": checks.gpu_list,
    "model_process": checks.one_of("worker", "shared"),
    "request_timeout_ms": checks.as_text(checks.whole(1, 86_400_000)),
    "max_body_bytes": checks.as_text(checks.whole(1, 1 << 40)),
    "api_keys": checks.keys,
}
