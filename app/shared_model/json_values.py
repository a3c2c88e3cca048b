"""Dataclasses, NamedTuples and errors as JSON values, and back by their type hints."""

import dataclasses
import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from app import errors
from app.errors import BasketError
from app.repository.served import State

_log = logging.getLogger(__name__)


def plain(value: Any) -> Any:
    """Return JSON's form of a value that JSON lacks; values in it stay as they are.

    It is the `default` of JSON encoders. Some write NamedTuples or dataclasses
    themselves: as a list, and as an object of all attributes.

    Raises:
        TypeError: JSON has no form of it.
    """
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.dtype):
        return value.str
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


def from_json(hint: Any, value: Any) -> Any:
    """Return the value of a type hint from the JSON that `plain` makes of it.

    A union has None beside one other type; a mapping has strings as keys.

    Raises:
        Exception: the value is none of this type.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    found = value
    if origin in (Union, UnionType):
        if value is not None:
            (inner,) = (each for each in arguments if each is not NoneType)
            found = from_json(inner, value)
    elif origin is tuple:
        each_of = itertools.repeat(arguments[0]) if ... in arguments else arguments
        found = tuple(map(from_json, each_of, value))
    elif origin in (Mapping, dict):
        found = {key: from_json(arguments[1], each) for key, each in value.items()}
    elif dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        given = {key: from_json(hints[key], each) for key, each in value.items()}
        found = cast("Any", hint)(**given)
    elif hasattr(hint, "_fields"):
        found = hint(*map(from_json, get_type_hints(hint).values(), value))
    elif origin is np.dtype or hint in (Path, State):
        found = (origin or hint)(value)
    return found


def error_to_json(error: Exception) -> dict[str, Any]:
    """Return an error's class, text and attributes; a foreign one has no details."""
    if not isinstance(error, BasketError):
        _log.error("a job of a web worker failed", exc_info=error)
        error = BasketError("internal error")
    return {
        "error": type(error).__name__,
        "text": str(error),
        "attributes": vars(error),
    }


def error_from_json(values: Mapping[str, Any]) -> BasketError:
    """Return the error of `error_to_json`; a BasketError if its class is unknown."""
    found = getattr(errors, values["error"], None)
    if not isinstance(found, type) or not issubclass(found, BasketError):
        found = BasketError
    error = found(values["text"])
    vars(error).update(values["attributes"])
    return error
