"""What Basket wants of Gunicorn's other workers, too: sync's and gevent's.

Measured against Gunicorn 26.2: they answer what is no HTTP with HTML, and trailers that
are none with a 500; gevent's keeps a connection with a broken chunk, and takes what
comes behind it for a request.
"""

import contextlib
import json
import socket
import ssl
from http import HTTPStatus
from typing import Any

from gunicorn.http import errors
from gunicorn.http.body import ChunkedReader
from gunicorn.workers.base import Worker
from gunicorn.workers.base_async import AsyncWorker
from gunicorn.workers.sync import SyncWorker

from app.workers.body import StrictChunks
from app.workers.quiet_socket import QuietSocket

_STATUSES = (
    (errors.LimitRequestLine, HTTPStatus.REQUEST_URI_TOO_LONG),
    (errors.LimitRequestHeaders, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    (errors.ExpectationFailed, HTTPStatus.EXPECTATION_FAILED),
    (errors.UnsupportedTransferCoding, HTTPStatus.NOT_IMPLEMENTED),
    (errors.ForbiddenProxyRequest, HTTPStatus.FORBIDDEN),
    ((errors.ParseException, ssl.SSLError), HTTPStatus.BAD_REQUEST),
)
# A client's text is repeated in an error only so far.
_SHOWN = 200


class JsonErrors(Worker):
    """A Worker that says in JSON what is wrong with what is no request."""

    def handle_error(
        self, req: Any, client: socket.socket, addr: Any, exc: BaseException
    ) -> None:
        """Answer what is no HTTP with JSON, as all other errors are."""
        del req
        found = (status for kinds, status in _STATUSES if isinstance(exc, kinds))
        status = next(found, HTTPStatus.INTERNAL_SERVER_ERROR)
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log.error("Error handling request", exc_info=exc)
            text = "internal error; the server's log has more"
        else:
            self.log.warning("Invalid request from %s: %s", addr, exc)
            text = str(exc)[:_SHOWN]
        body = json.dumps({"error": text})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "Connection: close\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        whole = (head + body).encode()
        with contextlib.suppress(OSError):
            if isinstance(client, QuietSocket):
                # The main loop waits for nobody, and the connection is at its end.
                client.send_at_once(whole)
            else:
                client.sendall(whole)


class Strict(JsonErrors):
    """A SyncWorker or an AsyncWorker that ends a connection with a broken body."""

    def handle_request(self, listener: Any, req: Any, *client: Any) -> None:
        """Answer a request, whose body ends with its first bad chunk."""
        if isinstance(getattr(req.body, "reader", None), ChunkedReader):
            req.body.reader = StrictChunks(req, req.unreader)
        super().handle_request(listener, req, *client)  # type: ignore[misc]


def strict(worker_class: type[Worker]) -> type[Worker]:
    """The class, strict where it is sync's or gevent's."""
    if issubclass(worker_class, SyncWorker | AsyncWorker):
        return type(worker_class.__name__, (Strict, worker_class), {})
    return worker_class
