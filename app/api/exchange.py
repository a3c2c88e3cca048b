"""An inference request and its answer, as plain WSGI has them (PEP 3333).

Flask's request and response cost more than a small model takes for a row, so the
routes that predict do without.

What a request waits for is awaited, so that one straight line of code serves both a
thread for each request, where nothing ever suspends, and an event loop for all.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from urllib.parse import parse_qs

from werkzeug.http import parse_options_header

from app.api.body import read_body
from app.api.environ import Environ, variable
from app.batching.job import Answer, Job, Wake
from app.batching.runner import Runner
from app.repository.served import ServedModel

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

JSON = "application/json"
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(slots=True)
class HttpResponse:
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
    """One request, and what becomes known of it on its way; in a thread of its own.

    `arrived_at` is on the monotonic clock, `model` and `job` are there from the time
    on that they are found and submitted. `wake` is how the job's answer is told where
    no thread waits for it.
    """

    __slots__ = ("arrived_at", "environ", "job", "model", "wake")

    def __init__(self, environ: Environ) -> None:
        """Note when it arrives, before anything else is done with it."""
        self.arrived_at = time.monotonic()
        self.environ = environ
        self.model: ServedModel | None = None
        self.job: Job | None = None
        self.wake: Wake | None = None

    def header(self, name: str) -> str | None:
        """A header's text; None: the request has none of that name."""
        text: str | None = self.environ.get(variable(name))
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

    async def body(self, limit_bytes: int) -> bytes:
        """The body as it was sent.

        Raises:
            TooLarge: more than the limit.
            BadInput: cut off, or not as HTTP has it.
            TooSlow: it has not come in time.
        """
        return read_body(self.environ, limit_bytes)

    async def work(
        self,
        quick: bool,
        function: Callable[_P, _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Call a function where it may take its time, unless it is `quick`."""
        return function(*args, **kwargs)

    async def submit(self, runner: Runner, job: Job) -> None:
        """Submit a job, where a model may run if that is what submitting does."""
        runner.submit(job)

    async def answered(self, job: Job) -> Answer:
        """The answer, or what `job.wait` raises."""
        return job.wait()

    def is_gone(self) -> Callable[[], bool]:
        """Return a check that says whether the client is gone; WSGI can't tell."""
        return lambda: False


@cache
def _status_line(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase.upper()}"
