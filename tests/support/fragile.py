"""Basket with a fault on unusual requests, which fuzzing has to detect.

`gunicorn 'tests.support.fragile:fragile("raises")'` serves wsgi.py's application with
one of FAULTS.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

from flask import Flask, request, request_started

_LEAK_BYTES = 4 << 20
_kept: list[bytearray] = []


def _raises() -> None:
    raise RuntimeError("no such method")


def _dies() -> None:
    os._exit(1)


def _leaks() -> None:
    # Written to, so that it is resident.
    _kept.append(bytearray(b"x") * _LEAK_BYTES)


# By name: the effect of an unusual request, and the text of fuzzing's report of it.
FAULTS: dict[str, tuple[Callable[[], None], str]] = {
    "raises": (_raises, "status 500"),
    "dies": (_dies, "workers"),
    "leaks": (_leaks, "has grown by"),
}


def app_with(fault: str) -> str:
    """Return the application with this fault, as Gunicorn's argument."""
    return f"tests.support.fragile:fragile({fault!r})"


def fragile(fault: str) -> Any:
    """Return the application with this fault."""
    app = importlib.import_module("wsgi").app
    effect, _ = FAULTS[fault]

    def begin(_: Flask) -> None:
        # Methods that only fuzzing sends.
        if request.method in ("PUT", "PATCH", "DELETE", "TRACE", "BREW"):
            effect()

    # Before authentication.
    request_started.connect(begin, app, weak=False)
    return app
