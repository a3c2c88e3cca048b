"""Every knob, read once from BASKET_*; a bad value stops the start by its name."""

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from app.errors import SettingsError

_PREFIX = "BASKET_"
_T = TypeVar("_T")


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
    gpu_memory_fraction: float | None = None
    # None: all of them.
    gpus: tuple[int, ...] | None = None
    model_process: str = "worker"
    request_timeout_ms: int = 30_000
    max_body_bytes: int = 64 * 1024 * 1024
    # Empty: no key is asked for. A secret, so kept out of every text.
    api_keys: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read all knobs; an empty value counts as not set.

        Raises:
            SettingsError: a value that can't be; the text names the variable.
        """
        given: dict[str, Any] = {}
        for knob in fields(cls):
            name = _PREFIX + knob.name.upper()
            text = environ.get(name, "").strip()
            if not text:
                continue
            try:
                given[knob.name] = parse_setting(knob.name, text)
            except ValueError as error:
                shown = f"={text!r}" if knob.repr else ""
                raise SettingsError(f"{name}{shown}: {error}") from error
        made = cls(**given)
        if not made.model_dir.is_dir():
            raise SettingsError(
                f"BASKET_MODEL_DIR is not set, and there is no folder {made.model_dir} "
                "here"
            )
        return made


def parse_setting(name: str, text: str) -> Any:
    """The value of the field `name` as text gives it.

    Raises:
        ValueError: the value can't be.
    """
    return _PARSERS[name](text)


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """One line for each BASKET_ variable that is no knob, with the nearest knob.

    These are worth a warning, not a refusal: Kubernetes sets BASKET_PORT and its
    like by itself in each pod beside a service called basket.
    """
    known = [knob.name.upper() for knob in fields(Settings)]
    lines = []
    for name in sorted(environ):
        rest = name.removeprefix(_PREFIX)
        if rest not in (name, *known):
            # Without the prefix: it alone would make all names look alike.
            near = difflib.get_close_matches(rest, known, n=1)
            hint = f"; did you mean {_PREFIX}{near[0]}?" if near else ""
            lines.append(f"{name} is not a setting of Basket{hint}")
    return lines


def _folder(text: str) -> Path:
    # Path.is_dir raises where a folder above may not be entered; this says no.
    if not os.path.isdir(text):
        raise ValueError("there is no such folder")
    return Path(text)


def _name(text: str) -> str:
    if "/" in text or text.startswith("."):
        raise ValueError("expected the name of a model, not a path")
    return text


def _switch(text: str) -> bool:
    if text.lower() not in ("on", "off"):
        raise ValueError("expected on or off")
    return text.lower() == "on"


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected {' or '.join(words)}")
        return text

    return parse


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(text)

    return parse


def _auto_or(parse: Callable[[str], _T]) -> Callable[[str], _T | None]:
    return lambda text: None if text == "auto" else parse(text)


def _fraction(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or not 0 < float(text) <= 1:
        raise ValueError("expected a number above 0 and up to 1")
    return float(text)


def _gpu_list(text: str) -> tuple[int, ...] | None:
    if text == "all":
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", part) for part in parts):
        raise ValueError("expected all, or GPU numbers with commas such as 0,1")
    numbers = tuple(int(part) for part in parts)
    if len(set(numbers)) < len(numbers):
        raise ValueError("a GPU is named twice")
    return numbers


def _keys(text: str) -> tuple[str, ...]:
    keys = tuple(part.strip() for part in text.split(","))
    if not all(keys):
        raise ValueError("an empty key stands between the commas")
    if not text.isascii():
        raise ValueError("a key has a character that no HTTP header carries as it is")
    return keys


_PARSERS: dict[str, Callable[[str], object]] = {
    "model_dir": _folder,
    "default_model": _name,
    "engine": _one_of("tensorflow"),
    "batching": _switch,
    "max_batch_size": _integer(1, 1_000_000),
    "batch_timeout_micros": _auto_or(_integer(0, 3_600_000_000)),
    "max_enqueued_batches": _integer(1, 1_000_000),
    "gpu_memory_fraction": _fraction,
    "gpus": _gpu_list,
    "model_process": _one_of("worker"),
    "request_timeout_ms": _integer(1, 86_400_000),
    "max_body_bytes": _integer(1, 1 << 40),
    "api_keys": _keys,
}
