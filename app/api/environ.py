"""The WSGI environment (PEP 3333), and what the API reads from it."""

import io
import itertools
import re
import secrets
import sys
from functools import lru_cache
from typing import Any

Environ = dict[str, Any]
REQUEST_ID = "X-Request-Id"

# Visible ASCII.
_REQUEST_ID = re.compile(r"[!-~]{1,128}").fullmatch
# Random for each process, as workers import this module after their fork. A random id
# for each request would cost several times as much.
_PROCESS = secrets.token_hex(6)
_numbers = itertools.count(1)
_LONGEST_NAME = 128


def path_of(environ: Environ) -> str:
    """Return the path in Latin-1, with one leading slash, as Flask sees it."""
    path: str = environ["PATH_INFO"]
    return path if path[1:2] != "/" else "/" + path.lstrip("/")


def traffic_split_key(environ: Environ) -> str | None:
    """Return the text that decides a request's side of a traffic split.

    It is X-Client-Id, or else the API key.
    """
    return environ.get("HTTP_X_CLIENT_ID") or environ.get("HTTP_AUTHORIZATION")


def authorization(environ: Environ) -> tuple[str, str]:
    """Return the scheme of Authorization in lower case, and the key."""
    scheme, _, key = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return scheme.lower(), key.strip()


def fair_queueing_key(environ: Environ) -> str:
    """Return the client whose requests share a part of the queue.

    It is the API key, else X-Client-Id, else the address. The key comes first: its
    bearer could choose a new X-Client-Id for each request.
    """
    key = authorization(environ)[1] if "HTTP_AUTHORIZATION" in environ else ""
    return key or environ.get("HTTP_X_CLIENT_ID") or environ.get("REMOTE_ADDR") or ""


def client_name(environ: Environ) -> str:
    """Return what the request log calls a client: X-Client-Id, else the address.

    It is never a key, which is a secret.
    """
    name: str = environ.get("HTTP_X_CLIENT_ID") or environ.get("REMOTE_ADDR") or ""
    return name[:_LONGEST_NAME]


def request_id(environ: Environ) -> str:
    """Return a request's X-Request-Id, or a new id if it has none that can be used."""
    given: str | None = environ.get("HTTP_X_REQUEST_ID")
    if given is not None and _REQUEST_ID(given):
        return given
    return f"{_PROCESS}-{next(_numbers):x}"


def complete(environ: Environ, protocol: str, body: bytes) -> None:
    """Add the variables that PEP 3333 requires, but those of the connection."""
    environ |= {
        "SERVER_PROTOCOL": protocol,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.input": io.BytesIO(body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


# Bounded, as a server may ask for names that its clients choose.
@lru_cache(maxsize=1024)
def variable(name: str) -> str:
    """Return the CGI variable of a header."""
    capitals = name.upper().replace("-", "_")
    return capitals if capitals in _WITHOUT_PREFIX else "HTTP_" + capitals


_WITHOUT_PREFIX = ("CONTENT_TYPE", "CONTENT_LENGTH")
