"""An inference request and its response, as WSGI has them (PEP 3333).

Flask's request and response cost more than a small model takes for a row, so routes
that predict do without them.

All that a request waits for is awaited. So one sequence of calls serves both a thread
for each request, where nothing ever suspends, and an event loop for all requests.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import parse_qs

from werkzeug.http import parse_options_header

from app.api.body import read_body
from app.api.environ import Environ, request_id, variable
from app.batching.job import Job, Wake
from app.codec.bounds import Bounds
from app.errors import Abandoned, BadInput, Late
from app.repository.routing import Rollout
from app.repository.served import ServedModel
from app.settings.model_config import CaptureConfig

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

JSON = "application/json"
_T = TypeVar("_T")


class Threads(Protocol):
    """Threads of the user's own code."""

    def submit(self, call: Callable[[], object]) -> None:
        """Call a function, which raises nothing, in a thread."""

    def submit_if_idle(self, call: Callable[[], object]) -> bool:
        """Call a function in a thread that is idle now; return False if none is."""


@dataclass(slots=True)
class HttpResponse:
    """A response with a whole body; `headers` lack its type and length."""

    body: bytes
    content_type: str = JSON
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)

    def send(self, start_response: "StartResponse") -> Iterable[bytes]:
        """Pass the response to a WSGI server."""
        headers = [
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
            *self.headers,
        ]
        start_response(_status_line(self.status), headers)
        return (self.body,)


class Exchange:
    """One inference request, which has a thread of its own.

    `arrived_at` and `deadline` are on the monotonic clock. `model` and `job` are None
    until the model is leased and the job is submitted. `wake` is that of a job which
    an event loop waits for, None where a thread waits for the answer. `splits_rows`
    once rows were found to have unlike shapes. `filled_bytes` are those of tensors of
    which a small message has one value. `answer` is None until `answered_at`,
    when encoding begins; then it is the answered job. `jobs` are those that were made
    of its rows.
    `traceparent` is W3C's name of the request's span, if the request is traced.
    `capture` is how this request is captured, if it is, with the JSON of its
    `instances` if the model has no tensors. `rows` and `stages_s`
    are None until its rows are submitted, and until it is answered.
    """

    __slots__ = (
        "answer",
        "answered_at",
        "arrived_at",
        "capture",
        "deadline",
        "environ",
        "filled_bytes",
        "instances",
        "job",
        "jobs",
        "model",
        "request_id",
        "rollout",
        "rows",
        "splits_rows",
        "stages_s",
        "traceparent",
        "wake",
    )

    def __init__(self, environ: Environ) -> None:
        """Store the WSGI environment and the time of arrival."""
        self.arrived_at = time.monotonic()
        self.deadline = math.inf
        self.environ = environ
        self.model: ServedModel | None = None
        self.job: Job | None = None
        self.jobs: list[Job] = []
        self.wake: Wake | None = None
        self.splits_rows = False
        self.filled_bytes = 0
        self.answer: Job | None = None
        self.answered_at = math.inf
        self.traceparent: str | None = None
        self.request_id = request_id(environ)
        self.capture: CaptureConfig | None = None
        self.rollout: Rollout | None = None
        self.instances: list[bytes] | None = None
        self.rows: int | None = None
        self.stages_s: Mapping[str, float] | None = None

    def timeout_s(self, limit_ms: int) -> float:
        """Return the request's own timeout, which may only shorten the server's.

        Raises:
            BadInput: it is no number of milliseconds.
        """
        text = self.environ.get("HTTP_X_REQUEST_TIMEOUT_MS")
        if text is None:
            return limit_ms / 1000
        significant = text.lstrip("0")
        if not text.isascii() or not significant.isdigit():
            raise BadInput(
                "X-Request-Timeout-Ms: expected a whole number of ms, 1 or more, given "
                f"{text[:40]!r}"
            )
        # Shortened, as Python takes no more than 4300 digits.
        return min(int(significant[:18]), limit_ms) / 1000

    def header(self, name: str) -> str | None:
        """Return a header's value, or None if the request lacks it."""
        text: str | None = self.environ.get(variable(name))
        return text

    @property
    def mimetype(self) -> str:
        """The body's Content-Type in lower case, without its parameters."""
        sent: str = self.environ.get("CONTENT_TYPE") or ""
        return sent if sent == JSON else parse_options_header(sent)[0].lower()

    def query(self, name: str) -> str | None:
        """Return the first value of a parameter in the URL's query."""
        text: str = self.environ.get("QUERY_STRING") or ""
        if not text:
            return None
        return parse_qs(text, keep_blank_values=True).get(name, [None])[0]

    async def body(self, limit_bytes: int) -> bytes:
        """Return the body as it was sent.

        Raises:
            TooLarge: it exceeds the limit.
            BadInput: it is cut off, or malformed HTTP.
            TooSlow: it did not arrive in time.
        """
        return read_body(self.environ, limit_bytes)

    async def offload(
        self, function: Callable[[], _T], threads: Threads | None = None
    ) -> _T:
        """Call a function that may take longer than a millisecond.

        `threads` are those of the user's own code, which may never return.

        Raises:
            Late: it has not returned by the deadline, in these threads.
        """
        return function()

    async def around(
        self,
        threads: Threads,
        before: Callable[[Wake | None], Job | None],
        after: Callable[[Job], _T],
    ) -> _T | None:
        """Call `before`, which submits a job, and `after` once the job is answered.

        Both are called in these threads, without a way over the event loop between
        (docs/decisions.md, Threads of service.py). `before` gets the job's `wake`.
        The result is that of `after`, or None if `before` has submitted none.

        Raises:
            Late: `after` has not returned by the deadline.
        """
        job = before(None)
        return None if job is None else after(job)

    def hold(self, count: int) -> None:
        """Count the bytes that the request's body and rows take now, if all are.

        Any thread may call it.

        Raises:
            Unavailable: large requests would exceed their memory.
        """

    def check_awaited(self) -> None:
        """Check that the client still waits; long work calls this between its parts.

        Raises:
            Late: the deadline has passed.
            Abandoned: the client disconnected.
        """
        if self.is_gone():
            raise Abandoned("the client disconnected before its rows were decoded")
        if time.monotonic() >= self.deadline:
            raise Late("the request's deadline passed before its rows were decoded")

    def bounds(self, model: ServedModel) -> Bounds:
        """Return the bounds of this request's rows."""
        return Bounds(model.max_rows, self.check_awaited, self.splits_rows)

    async def answered(self, job: Job) -> None:
        """Wait until the job is answered, or fail it at its deadline."""
        job.wait()

    def is_gone(self) -> bool:
        """Return whether the client disconnected; WSGI can't tell."""
        return False


@cache
def _status_line(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase.upper()}"
