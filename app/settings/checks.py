"""Checks of single settings: each returns the value or raises ValueError."""

import datetime
import itertools
import json
import math
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from app.settings.model_files import name_problem

_LONGEST_SHOWN = 80
_LAST_PORT = 65535
_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?"
)
# Browsers leave these out of an origin.
_OWN_PORTS = {"http": ":80", "https": ":443"}
_T = TypeVar("_T")


def whole(low: int, high: int) -> Callable[[object], int]:
    """Return a check for a whole number from `low` to `high`."""

    def check(value: object) -> int:
        # isinstance would accept a bool.
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return value

    return check


def increasing(check: Callable[[object], int]) -> Callable[[object], tuple[int, ...]]:
    """Return a check for a list of such numbers in increasing order."""

    def check_all(values: object) -> tuple[int, ...]:
        if not isinstance(values, list):
            raise ValueError("expected a list of whole numbers")
        numbers = tuple(check(value) for value in values)
        if any(first >= second for first, second in itertools.pairwise(numbers)):
            raise ValueError("each number must be larger than the one before")
        return numbers

    return check_all


def auto_or(check: Callable[[object], _T]) -> Callable[[object], _T | None]:
    """Return a check that also accepts the word auto, as None."""

    def check_or_auto(value: object) -> _T | None:
        try:
            return None if value == "auto" else check(value)
        except ValueError as error:
            raise ValueError(f"{error}, or auto") from error

    return check_or_auto


def as_text(check: Callable[[object], _T]) -> Callable[[str], _T]:
    """Return a parser of text for the check of a whole number or a word."""

    def parse(text: str) -> _T:
        return check(int(text) if re.fullmatch(r"[0-9]{1,18}", text) else text)

    return parse


def one_of(*words: str) -> Callable[[object], str]:
    """Return a check for one of these words."""

    def check(value: object) -> str:
        if value not in words:
            raise ValueError(f"expected {' or '.join(words)}")
        return str(value)

    return check


def true_or_false(value: object) -> bool:
    """Return a bool of a file."""
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def engine(value: object) -> str:
    """Return the engine for Keras files; check that its package is installed."""
    word = one_of("tensorflow", "jax", "openvino")(value)
    # Only environments made for JAX lack TensorFlow.
    if find_spec(word) is None:
        raise ValueError(f"{word} is not installed: {install(word)}")
    return word


def constants(table: object) -> str:
    """Return a table of constants as JSON, "" for an empty one."""
    if not isinstance(table, dict):
        raise ValueError("expected a table: [constants]")
    for name, value in table.items():
        if not _is_constant(value):
            raise ValueError(
                f"{name}: expected true, false, a finite number, text, or lists of "
                "these"
            )
    return json.dumps(table) if table else ""


def _is_constant(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_constant, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | int | str)


def install(engine: str) -> str:
    """Return the command that installs an engine's framework."""
    file = "requirements" if engine == "tensorflow" else f"requirements/{engine}"
    return f"pip install --require-hashes -r {file}.txt"


def folder(text: str) -> Path:
    """Return the path of a folder that exists."""
    if os.path.isfile(text):
        raise ValueError("it is a file, not a folder")
    # Path.is_dir raises PermissionError for a parent that can't be entered.
    if not os.path.isdir(text):
        raise ValueError("there is no such folder")
    return Path(text)


def new_folder(text: str) -> Path:
    """Return the path of a folder that exists, or is in one that does."""
    if not os.path.isdir(text):
        folder(os.path.dirname(os.path.abspath(text)))
    if os.path.isfile(text):
        raise ValueError("it is a file, not a folder")
    return Path(text)


def log_file(text: str) -> str:
    """Return the path of a file in a folder that exists, or "-" for stdout."""
    if text != "-":
        if os.path.isdir(text):
            raise ValueError("it is a folder, not a file")
        folder(os.path.dirname(os.path.abspath(text)))
    return text


def model_name(text: str) -> str:
    """Return the name of a model, which is a folder in the model folder."""
    if not text or "/" in text or text.startswith("."):
        raise ValueError("expected the name of a model, not a path")
    if problem := name_problem(text):
        raise ValueError(problem)
    return text


def switch(text: str) -> bool:
    """Return True for on, False for off."""
    if text.lower() not in ("on", "off"):
        raise ValueError("expected on or off")
    return text.lower() == "on"


def fraction(text: str) -> float:
    """Return a number above 0 and up to 1."""
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or not 0 < float(text) <= 1:
        raise ValueError("expected a number above 0 and up to 1")
    return float(text)


def gpu_list(text: str) -> tuple[int, ...] | None:
    """Return the indexes of GPUs, or None for all of them."""
    if text == "all":
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", part) for part in parts):
        raise ValueError("expected all, or GPU numbers with commas such as 0,1")
    numbers = tuple(int(part) for part in parts)
    if len(set(numbers)) < len(numbers):
        raise ValueError("a GPU is named twice")
    return numbers


def keys(text: str) -> tuple[str, ...]:
    """Return API keys from a list with commas."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError("an empty key stands between the commas")
    if not text.isascii():
        raise ValueError("a key has a character that no HTTP header carries as it is")
    return found


def host_names(text: str) -> tuple[str, ...]:
    """Return names of hosts, in lower case, from a list with commas."""
    found = tuple(part.strip().lower() for part in text.split(","))
    if not all(re.fullmatch(r"[a-z0-9_.-]*[a-z0-9_-]", name) for name in found):
        raise ValueError(
            "expected names of hosts without schemes and ports, such as "
            "basket.example.com"
        )
    return found


def origins(text: str) -> tuple[str, ...]:
    """Return origins of pages as browsers write them, from a list with commas, or *."""
    found = tuple(part.strip().lower() for part in text.split(","))
    if found != ("*",) and not all(map(_ORIGIN.fullmatch, found)):
        raise ValueError(
            "expected origins with a scheme and without a path, such as "
            "https://shop.example.com or http://localhost:3000, or * alone for all"
        )
    return tuple(
        each.removesuffix(_OWN_PORTS.get(each.partition(":")[0], "")) for each in found
    )


def address(text: str) -> str:
    """Return an address of this machine, host:port, as it is."""
    found = re.fullmatch(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})", text)
    if found is None or not 1 <= int(found[1]) <= _LAST_PORT:
        raise ValueError("expected host:port, such as 127.0.0.1:8500 or [::1]:8500")
    return text


def shown(value: object) -> str:
    """Return a file's value as an error repeats it, shortened."""
    text = _in_toml(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _in_toml(value: object) -> str:
    """Return a value as TOML has it; text as Python has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list):
        return f"[{', '.join(map(_in_toml, value))}]"
    if isinstance(value, dict):
        pairs = (f"{key} = {_in_toml(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    return repr(value)
