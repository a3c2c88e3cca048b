"""An inference request and its answer, as plain WSGI has them (PEP 3333).

Flask's request and response cost more than a small model takes for a row, so the
routes that predict do without.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from werkzeug.http import parse_options_header

from app.serving.job import Job
from app.serving.served import ServedModel

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

Environ = dict[str, Any]
JSON = "application/json"


@dataclass(slots=True)
class Reply:
    """What goes back: a whole body, and headers beside its type and length."""

    body: bytes
    content_type: str = JSON
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)

    def send(self, start_response: "StartResponse") -> Iterable[bytes]:
        """Hand it to the server."""
        headers = [
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
            *self.headers,
        ]
        start_response(_status_line(self.status), headers)
        return (self.body,)


class Exchange:
    """One request, and what becomes known of it on its way.

    `arrived_at` is on the monotonic clock, `model` and `job` are there from the time
    on that they are found and submitted.
    """

    __slots__ = ("arrived_at", "environ", "job", "model")

    def __init__(self, environ: Environ) -> None:
        """Note when it arrives, before anything else is done with it."""
        self.arrived_at = time.monotonic()
        self.environ = environ
        self.model: ServedModel | None = None
        self.job: Job | None = None

    def header(self, name: str) -> str | None:
        """A header's text; None: the request has none of that name."""
        text: str | None = self.environ.get(_variable(name))
        return text

    @property
    def mimetype(self) -> str:
        """The body's Content-Type in lower case, without its parameters."""
        sent: str = self.environ.get("CONTENT_TYPE") or ""
        return sent if sent == JSON else parse_options_header(sent)[0].lower()

    def mimetype_parameter(self, name: str) -> str | None:
        """A parameter of the body's Content-Type."""
        return parse_options_header(self.environ.get("CONTENT_TYPE"))[1].get(name)

    def query(self, name: str) -> str | None:
        """The first value of this name in the URL's query."""
        text: str = self.environ.get("QUERY_STRING") or ""
        if not text:
            return None
        return parse_qs(text, keep_blank_values=True).get(name, [None])[0]


def path_of(environ: Environ) -> str:
    """The path, as bytes in Latin-1; as for Flask, slashes before it don't count."""
    path: str = environ["PATH_INFO"]
    return path if path[1:2] != "/" else "/" + path.lstrip("/")


def client_name(environ: Environ) -> str | None:
    """Who asks, for a split of the traffic: X-Client-Id, else the API key."""
    return environ.get("HTTP_X_CLIENT_ID") or environ.get("HTTP_AUTHORIZATION")


def sharer(environ: Environ) -> str:
    """Who shares a full queue evenly with others: an API key, a name, an address.

    A key counts before the name that its bearer may choose, one for each request.
    """
    named = environ.get("HTTP_AUTHORIZATION") or environ.get("HTTP_X_CLIENT_ID")
    return named or environ.get("REMOTE_ADDR") or ""


@cache
def _variable(name: str) -> str:
    """Where CGI, and with it WSGI, puts a header."""
    return "HTTP_" + name.upper().replace("-", "_")


@cache
def _status_line(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase.upper()}"
