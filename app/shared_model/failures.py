"""Errors of app.errors as JSON values, and back."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.errors import BasketError, Unavailable


def describe(error: Exception) -> dict[str, Any]:
    """The error's class, its text, and when to come again; one of ours, else none."""
    if not isinstance(error, BasketError):
        return {"error": BasketError.__name__, "text": "internal error"}
    described: dict[str, Any] = {"error": type(error).__name__, "text": str(error)}
    if isinstance(error, Unavailable):
        described["retry_after_s"] = error.retry_after_s
    return described


def rebuild(described: Mapping[str, Any]) -> BasketError:
    """The error that was described; a BasketError where its class is not known."""
    text = str(described.get("text", ""))
    known = {each.__name__: each for each in _subclasses(BasketError)}
    found = known.get(str(described.get("error")), BasketError)
    if issubclass(found, Unavailable):
        return found(text, int(described.get("retry_after_s", 1)))
    return found(text)


def _subclasses(root: type[BasketError]) -> Iterator[type[BasketError]]:
    yield root
    for each in root.__subclasses__():
        yield from _subclasses(each)
