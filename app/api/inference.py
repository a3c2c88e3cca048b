"""One request's way: lease a model, decode, submit, wait, encode.

Every route that predicts goes through `Inference.answer`; the protocols differ only
in how they read a body and write an answer. All of it runs in the request's thread.
"""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from flask import Flask, Response, after_this_request, g, request
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from app import telemetry
from app.api.client import hung_up
from app.api.way_back import WayBack
from app.codec import compression
from app.engines.base import Tensors
from app.errors import BadInput, TooLarge, TooSlow, Unsupported
from app.serving.catalog import Catalog
from app.serving.job import Answer, Job
from app.serving.routing import Target
from app.serving.served import ServedModel
from app.settings import Settings


class Decoded(Protocol):
    """What a codec makes of a body."""

    @property
    def signature_name(self) -> str:
        """The function of the model that is asked."""
        ...

    @property
    def inputs(self) -> Tensors:
        """Rows (rows, *shape)."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """The request's own limit, where the body says one."""
        ...


_Decoded = TypeVar("_Decoded", bound=Decoded)


class Inference:
    """Answers requests from the catalog's models."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        """Store the parts."""
        self._catalog = catalog
        self._settings = settings
        self._way_back = WayBack()

    def answer(
        self,
        target: Target,
        decode: Callable[[bytes, ServedModel], _Decoded],
        encode: Callable[[ServedModel, _Decoded, Tensors], Response],
    ) -> Response:
        """Serve the current request.

        Raises:
            BasketError: whatever is wrong with the request, or goes wrong on the way.
        """
        limit_s = _header_timeout_s(self._settings.request_timeout_ms)
        body = read_body()
        with self._catalog.lease(target) as model:
            g.model = model
            decoded = decode(body, model)
            timeout_s = min(limit_s, decoded.timeout_s or limit_s)
            job = Job(
                decoded.inputs,
                g.arrived_at + timeout_s,
                hung_up(request.environ),
                decoded.signature_name,
                _sharer(),
                self._way_back.reserve_s(timeout_s),
            )
            model.runner.submit(job)
            g.job = job
            answer = job.wait()
        answered_at = time.monotonic()
        response = encode(model, decoded, answer.outputs)
        self._way_back.took(time.monotonic() - answer.finished_at)
        _tell(response, model, answer, job.enqueued_at, answered_at)
        return response


def install_timing(app: Flask) -> None:
    """Note when each request arrives, before anything else is done with it."""

    def arrive() -> None:
        g.arrived_at = time.monotonic()

    app.before_request(arrive)


def read_body() -> bytes:
    """The current request's whole body, unpacked where it comes compressed.

    Raises:
        TooLarge: more than BASKET_MAX_BODY_BYTES, as sent or unpacked.
        Unsupported: an unknown Content-Encoding.
        BadInput: cut off, or not what its Content-Encoding says.
        TooSlow: it has not come in time.
    """
    limit = request.max_content_length
    assert limit is not None  # create_app sets it
    body = _received(limit)
    try:
        encoding = request.headers.get("Content-Encoding", "")
        return compression.decompress(body, encoding, limit)
    except Unsupported:
        after_this_request(_offer_encodings)
        raise


def _received(limit: int) -> bytes:
    try:
        body = request.get_data(cache=False)
        # Werkzeug stops at the limit where the body, in chunks, says no length.
        may_go_on = len(body) == limit and request.content_length is None
        if may_go_on and request.environ["wsgi.input"].read(1):
            raise RequestEntityTooLarge
    except RequestEntityTooLarge:
        raise TooLarge(f"the body is larger than {limit} bytes") from None
    except (ClientDisconnected, OSError, ValueError) as error:
        # Werkzeug's own error hides what the server's stream raised.
        cause = error.__context__ if isinstance(error, ClientDisconnected) else error
        if isinstance(cause, TimeoutError):
            raise TooSlow("the body has not come in time") from None
        text = getattr(cause, "strerror", None) or str(cause)
        raise BadInput(f"the body can't be read: {text[:200]}") from None
    return body


def _offer_encodings(response: Response) -> Response:
    response.headers["Accept-Encoding"] = ", ".join(compression.ENCODINGS)
    return response


def client_name() -> str | None:
    """Who asks, for a split of the traffic: X-Client-Id, else the API key."""
    return request.headers.get("X-Client-Id") or request.headers.get("Authorization")


def _sharer() -> str:
    """Who shares a full queue evenly with others: an API key, a name, an address.

    A key counts before the name that its bearer may choose, one for each request.
    """
    headers = request.headers
    named = headers.get("Authorization") or headers.get("X-Client-Id")
    return named or request.remote_addr or ""


def count(response: Response) -> Response:
    """Put an inference request into the metrics, a failed one too."""
    if request.method == "OPTIONS":
        return response
    took_s = time.monotonic() - g.arrived_at
    if "model" in g:
        g.model.observer.request_answered(response.status_code, took_s)
    else:
        telemetry.request_without_model(response.status_code, took_s)
    if "job" in g:
        g.model.observer.job_left_queue(g.job.queue_s())
    if "rejection" in g:
        telemetry.rejected(g.rejection)
    return response


def _header_timeout_s(limit_ms: int) -> float:
    """The request's own timeout, which may only shorten the server's."""
    text = request.headers.get("X-Request-Timeout-Ms")
    if text is None:
        return limit_ms / 1000
    if not text.isascii() or not text.isdigit() or int(text[:18]) == 0:
        raise BadInput(
            f"X-Request-Timeout-Ms: expected a whole number of ms, given {text[:40]!r}"
        )
    return min(int(text[:18]), limit_ms) / 1000


def _tell(
    response: Response,
    model: ServedModel,
    answer: Answer,
    decoded_at: float,
    answered_at: float,
) -> None:
    """Say in headers which version answered, in what batch, and how long it took."""
    spans_s = {
        "decode": decoded_at - g.arrived_at,
        "queue": answer.queue_s,
        "infer": answer.infer_s,
        "encode": time.monotonic() - answered_at,
    }
    model.observer.request_went_through(spans_s)
    response.headers["X-Model-Version"] = str(model.version)
    response.headers["X-Batch-Size"] = str(answer.batch_rows)
    response.headers["Server-Timing"] = ", ".join(
        f"{name};dur={seconds * 1000:.3f}" for name, seconds in spans_s.items()
    )
