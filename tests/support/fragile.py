"""Basket that bad requests can hurt: what the fuzzing has to catch.

`gunicorn 'tests.support.fragile:fragile("raises")'` serves what wsgi.py serves, with
one of FAULTS.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

from flask import Flask, request, request_started

_LEAK_BYTES = 1 << 20
_kept: list[bytearray] = []


def _raises() -> None:
    raise RuntimeError("no such method")


def _dies() -> None:
    os._exit(1)


def _leaks() -> None:
    # Written to, so that it is in memory.
    _kept.append(bytearray(b"x") * _LEAK_BYTES)


# What is done with a bad request, and what the fuzzing says of it.
FAULTS: dict[str, tuple[Callable[[], None], str]] = {
    "raises": (_raises, "status 500"),
    "dies": (_dies, "workers"),
    "leaks": (_leaks, "has grown by"),
}


def app_with(fault: str) -> str:
    """What Gunicorn is to import for a fault."""
    return f"tests.support.fragile:fragile({fault!r})"


def fragile(fault: str) -> Any:
    """The application with a fault."""
    app = importlib.import_module("wsgi").app
    hurt, _ = FAULTS[fault]

    def begin(_: Flask) -> None:
        # No client that means well sends such a request.
        if request.method in ("PUT", "PATCH", "DELETE", "TRACE", "BREW"):
            hurt()

    # Before any key is looked at.
    request_started.connect(begin, app, weak=False)
    return app
