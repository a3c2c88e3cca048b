"""Basket that bad requests can hurt: what the fuzzing has to catch.

`gunicorn 'tests.support.fragile:fragile("raises")'` serves what wsgi.py serves, with
one of FAULTS.
"""

import importlib
import os
from collections.abc import Callable, Iterable
from typing import Any

_Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]
_LEAK_BYTES = 1 << 20
_kept: list[bytearray] = []


def _is_bad(environ: dict[str, Any]) -> bool:
    """Say whether no client that means well sends such a request."""
    return environ["REQUEST_METHOD"] in ("PUT", "PATCH", "DELETE", "TRACE", "BREW")


def _raises(sound: _Wsgi, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    raise RuntimeError("no such method")


def _dies(sound: _Wsgi, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    os._exit(1)


def _leaks(sound: _Wsgi, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    # Written to, so that it is in memory.
    _kept.append(bytearray(b"x") * _LEAK_BYTES)
    return sound(environ, start)


# What is done with a bad request, and what the fuzzing says of it.
FAULTS: dict[str, tuple[Callable[..., Iterable[bytes]], str]] = {
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
    sound, (answer, _) = app.wsgi_app, FAULTS[fault]

    def wsgi_app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if _is_bad(environ):
            return answer(sound, environ, start)
        return sound(environ, start)

    app.wsgi_app = wsgi_app
    return app
