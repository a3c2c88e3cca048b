"""A call: one request and its outcome, whichever way it came in; and its reply."""

import itertools
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from app.codec.bounds import Bounds
from app.errors import Abandoned, Late

if TYPE_CHECKING:
    from app.serving.asks import Asks
    from app.serving.large_calls import LargeCalls

JSON = "application/json"
REQUEST_ID = "X-Request-Id"
# Where the WSGI environment has the head of a request that Flask answers.
HEAD_KEY = "basket.head"

# Random for each process, as workers import this module after their fork. A random id
# for each request would cost several times as much.
_ids = map(f"{secrets.token_hex(6)}-%x".__mod__, itertools.count(1))
# Return a new request id.
new_id: Callable[[], str] = _ids.__next__
_monotonic = time.monotonic
# Visible ASCII.
_REQUEST_ID = re.compile(r"[!-~]{1,128}").fullmatch


def valid_id(given: str | None) -> str:
    """Return a client's X-Request-Id if it can be used, else ""."""
    return given if given is not None and _REQUEST_ID(given) else ""


def with_one_slash(path: str) -> str:
    """Return a path with one slash at its begin: a base URL may end in one, too."""
    return path if path[1:2] != "/" else "/" + path.lstrip("/")


class Peer(NamedTuple):
    """Both ends of a connection: addresses, ports and scheme.

    `client` is "" and `client_port` 0 at a Unix socket, which has no address; then
    `server` is "unix".
    """

    client: str
    client_port: int
    server: str
    server_port: int
    scheme: str = "http"


class Head:
    """What a request says before its body; calls with equal heads may share it.

    `headers` has names in lower case, each once: the values of repeated fields are
    joined by commas. `path` is decoded as UTF-8 with surrogate escapes, has one leading
    slash, and neither query nor mount point; `raw_path` is as it was sent, in Latin-1.
    `request_id` is the client's X-Request-Id if it is valid, else "". `asks` is what
    the head asks for, once the predictor has looked, and `parameters` those of the
    query, once they are parsed.
    """

    def __init__(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        raw_path: str = "",
        version: str = "1.1",
    ) -> None:
        """Store the parts; `version` is HTTP's."""
        self.method = method
        self.path = with_one_slash(path)
        self.query = query
        self.headers = headers
        self.raw_path = raw_path or path
        self.version = version
        self.request_id = valid_id(headers.get("x-request-id"))
        self.asks: Any = None
        self.parameters: dict[str, list[str]] | None = None


class Reply:
    """A response with a whole body.

    `lines` are the headers beside Content-Type and Content-Length, as lines of
    HTTP/1.1, each with its end. Without a `content_type` there is neither body nor
    length, as in a 304.
    """

    __slots__ = ("body", "content_type", "lines", "status")

    def __init__(
        self, body: bytes, content_type: str = JSON, status: int = 200, lines: str = ""
    ) -> None:
        """Store the parts."""
        self.body = body
        self.content_type = content_type
        self.status = status
        self.lines = lines

    def headers(self) -> list[tuple[str, str]]:
        """Return all headers in pairs, for rims that take them so."""
        pairs = []
        if self.content_type:
            pairs.append(("Content-Type", self.content_type))
        for line in self.lines.split("\r\n")[:-1]:
            name, _, value = line.partition(": ")
            pairs.append((name, value))
        # Flask knows the length of a body that it leaves out of a response to HEAD.
        if self.content_type and "\ncontent-length:" not in f"\n{self.lines}".lower():
            pairs.append(("Content-Length", str(len(self.body))))
        return pairs


class Call:
    """One request; at its end also the outcome that listeners get.

    All times are on the monotonic clock. The rim sets the first attributes; `reply_to`
    takes the reply, once, on the event loop. `is_gone` once the client has
    disconnected. `rim_timeout_s` is the time that the client of a rim gives the call
    beside its headers.

    The predictor leases a `version` (of the catalog), whose `model` (a ServedModel) the
    protocol reads: it sets `decoded`, which says how to answer, and returns the `job`.
    They are None until then, and so is the `reply` until the end. `rollout` is how the
    model's traffic moved at the lease, and `capture` how the call is captured, None if
    it is not in the sample.
    """

    is_gone = False
    deadline = math.inf
    rim_timeout_s = math.inf
    version: Any = None
    model: Any = None
    rollout: Any = None
    capture: Any = None
    # JSON of the instances of a captured call whose model has no tensors.
    instances: "Sequence[bytes] | None" = None
    # gRPC's parsed message, whose bytes are the body.
    message: Any = None
    # The header of a small JPEG, which is the body.
    small_jpeg: Any = None
    # What the protocol made of the body: a codec's request.
    decoded: Any = None
    # Rows were found to have unlike shapes, which makes a job of each shape.
    splits_rows = False
    # Bytes of tensors of which a small message has one value.
    filled_bytes = 0
    # Counts bytes of large calls, where many are in memory at once; see `hold`.
    holder: "LargeCalls | None" = None
    held_bytes = 0
    most_held_bytes = 0
    job: Any = None
    # Whether its body is still to come.
    is_reading = False
    # Whether functions of the model's service.py are called for it.
    in_service = False
    # OpenTelemetry's span, and W3C's name for it, if the call is sampled.
    span: Any = None
    traceparent: str | None = None
    # The outcome: `stages_s` are seconds to decode, in the queue, in the engine and to
    # encode, None if the call failed; `error` is what it failed with.
    answered_at = math.inf
    ended_at = math.inf
    status = 0
    request_id = ""
    stages_s: tuple[float, float, float, float] | None = None
    error: BaseException | None = None
    reply: Any = None

    def __init__(
        self,
        head: Head,
        body: bytes,
        peer: Peer,
        reply_to: "Callable[[Call, Reply], None]" = lambda call, reply: None,
    ) -> None:
        """Store the parts, and the time of arrival."""
        self.arrived_at = _monotonic()
        self.head = head
        self.body = body
        self.peer = peer
        self.reply_to = reply_to

    # What protocols ask.

    @property
    def asks(self) -> "Asks":
        """What the head asks for, once the predictor has looked."""
        asks: Asks = self.head.asks
        return asks

    def header(self, name: str) -> str | None:
        """Return a header's value by its name in lower case, None without it."""
        return self.head.headers.get(name)

    def query(self, name: str) -> str | None:
        """Return the first value of a parameter in the URL's query."""
        head = self.head
        if not head.query:
            return None
        if head.parameters is None:
            head.parameters = parse_qs(head.query, keep_blank_values=True)
        return head.parameters[name][0] if name in head.parameters else None

    def bounds(self) -> Bounds:
        """Return the bounds of this call's rows."""
        return Bounds(self.model.max_rows, self.check_awaited, self.splits_rows)

    def hold(self, count: int) -> None:
        """Count the bytes that the body and rows of a large call take now.

        Any thread may call it.

        Raises:
            Unavailable: large calls would exceed their memory.
        """
        if self.holder is not None:
            self.holder.hold(self, count)

    def check_awaited(self) -> None:
        """Check that the client still waits; long work calls this between its parts.

        Raises:
            Abandoned: the client disconnected.
            Late: the deadline has passed.
        """
        if self.is_gone:
            raise Abandoned("the client disconnected before its rows were decoded")
        if time.monotonic() >= self.deadline:
            raise Late("the request's deadline passed before its rows were decoded")
