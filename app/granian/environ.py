"""A request's environ, as WSGI has it (PEP 3333), made from what RSGI says of it."""

import io
import sys

from app.api.environ import Environ, variable
from app.granian.spec import Scope


def is_below(path: str, prefix: str) -> bool:
    """Say whether a path belongs to what is mounted on the other."""
    return not prefix or path == prefix or path.startswith(prefix + "/")


def environ_of(scope: Scope, prefix: str) -> Environ:
    """As much of it as is asked for when a request predicts.

    `prefix` is the path that the application is mounted on, and the request's below.
    """
    # Decoded as UTF-8, where WSGI has bytes as Latin-1.
    path = scope.path[len(prefix) :] or "/"
    environ: Environ = {
        "REQUEST_METHOD": scope.method,
        "SCRIPT_NAME": prefix,
        "PATH_INFO": path if path.isascii() else path.encode().decode("latin-1"),
        "QUERY_STRING": scope.query_string,
        "REMOTE_ADDR": scope.client.rpartition(":")[0].strip("[]"),
    }
    for name, value in scope.headers.items():
        # One of these could pass for another header.
        if "_" not in name:
            place = variable(name)
            environ[place] = f"{environ[place]},{value}" if place in environ else value
    return environ


def complete(environ: Environ, scope: Scope, body: bytes) -> None:
    """Add to it what else an application is promised."""
    host, _, port = scope.server.rpartition(":")
    environ |= {
        "SERVER_NAME": host.strip("[]"),
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    # What HTTP/2 has in its place.
    if scope.authority is not None:
        environ.setdefault("HTTP_HOST", scope.authority)
