"""Basket's errors as JSON values, and back."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.errors import BasketError, Unavailable


def to_json(error: Exception) -> dict[str, Any]:
    """Return an error's class, text and Retry-After; a foreign error has no details."""
    if not isinstance(error, BasketError):
        return {"error": BasketError.__name__, "text": "internal error"}
    values: dict[str, Any] = {"error": type(error).__name__, "text": str(error)}
    if isinstance(error, Unavailable):
        values["retry_after_s"] = error.retry_after_s
    return values


def from_json(values: Mapping[str, Any]) -> BasketError:
    """Return the error of `to_json`; a BasketError if its class is unknown."""
    text = str(values.get("text", ""))
    known = {each.__name__: each for each in _subclasses(BasketError)}
    found = known.get(str(values.get("error")), BasketError)
    if issubclass(found, Unavailable):
        return found(text, int(values.get("retry_after_s", 1)))
    return found(text)


def _subclasses(root: type[BasketError]) -> Iterator[type[BasketError]]:
    yield root
    for each in root.__subclasses__():
        yield from _subclasses(each)
