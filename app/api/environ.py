"""What WSGI says of a request (PEP 3333), and what is read out of it."""

from functools import lru_cache
from typing import Any

Environ = dict[str, Any]


def path_of(environ: Environ) -> str:
    """The path, as bytes in Latin-1; as for Flask, slashes before it don't count."""
    path: str = environ["PATH_INFO"]
    return path if path[1:2] != "/" else "/" + path.lstrip("/")


def client_name(environ: Environ) -> str | None:
    """Who asks, for a split of the traffic: X-Client-Id, else the API key."""
    return environ.get("HTTP_X_CLIENT_ID") or environ.get("HTTP_AUTHORIZATION")


def authorization(environ: Environ) -> tuple[str, str]:
    """The scheme, in lower case, and the key, which may be written in many ways."""
    scheme, _, key = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return scheme.lower(), key.strip()


def sharer(environ: Environ) -> str:
    """Who shares a full queue evenly with others: an API key, a name, an address.

    A key counts before the name that its bearer may choose, one for each request.
    """
    named = authorization(environ)[1] or environ.get("HTTP_X_CLIENT_ID")
    return named or environ.get("REMOTE_ADDR") or ""


# Bounded: a server may ask for the names that its clients choose.
@lru_cache(maxsize=1024)
def variable(name: str) -> str:
    """Where CGI, and with it WSGI, puts a header."""
    capitals = name.upper().replace("-", "_")
    return capitals if capitals in _WITHOUT_PREFIX else "HTTP_" + capitals


_WITHOUT_PREFIX = ("CONTENT_TYPE", "CONTENT_LENGTH")
