"""All errors; those of a request know their HTTP status.

Imports the standard library only, so that every package may import it. A request's
client reads the error's text: it says what is wrong and where, without paths and
tracebacks.
"""

from typing import ClassVar

# gRPC's status code for each HTTP status of an error.
# https://grpc.io/docs/guides/status-codes/
GRPC_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    413: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    507: "RESOURCE_EXHAUSTED",
}


class SettingsError(Exception):
    """A configuration error, which stops the start; the text names the setting."""


class ModelLoadError(Exception):
    """A version can't be loaded; other versions are served."""


class NotYetLoadable(ModelLoadError):
    """Loading failed for a reason outside the version's files; it is retried."""


class BasketError(Exception):
    """Base of all errors that are a response to a client; `reason` labels metrics."""

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "internal"


class BadInput(BasketError):
    """The request is wrong, and would be wrong if sent again."""

    status = 400
    reason = "bad_input"


class TooLarge(BasketError):
    """The request exceeds a limit of this server."""

    status = 413
    reason = "too_large"


class TooSlow(BasketError):
    """The body did not arrive within the body timeout."""

    status = 408
    reason = "too_slow"


class Unauthorized(BasketError):
    """No key, or an unknown one."""

    status = 401
    reason = "unauthorized"


class Forbidden(BasketError):
    """The server is configured not to do this, or not for this request."""

    status = 403
    reason = "forbidden"


class Unsupported(BasketError):
    """A feature of the protocol that is not built here."""

    status = 501
    reason = "unsupported"


class UnknownEncoding(Unsupported):
    """A Content-Encoding that is not supported."""


class UnknownModel(BasketError):
    """No such model or version."""

    status = 404
    reason = "unknown_model"


class NoTensors(UnknownModel):
    """The version has no tensors: its service.py takes and gives objects."""


class ModelFailed(BasketError):
    """The model raised an error on this row."""

    status = 500
    reason = "model_failed"


class RefusedInput(ModelFailed):
    """The model raised an error that says that this row is invalid."""

    status = 400
    reason = "bad_input"


class WrongOutputs(ModelFailed):
    """The model did not return one row for each row."""


class Late(BasketError):
    """The job's deadline passed."""

    status = 504
    reason = "late"


class Abandoned(BasketError):
    """The client disconnected before its rows were run; nobody reads the response."""

    status = 503
    reason = "abandoned"


class OutOfDeviceMemory(BasketError):
    """The batch does not fit into the device's memory."""

    status = 507
    reason = "out_of_device_memory"


class Unavailable(BasketError):
    """The request can't be served now; retry in `retry_after_s` seconds."""

    status = 503
    reason = "unavailable"

    def __init__(self, text: str, retry_after_s: int = 1) -> None:
        """Store the text, and the seconds for the Retry-After header."""
        super().__init__(text)
        self.retry_after_s = retry_after_s


class QueueFull(Unavailable):
    """Admission control: the queue can't hold these rows."""

    reason = "queue_full"


class CannotMeetDeadline(Unavailable):
    """Admission control: the rows would not be answered before the deadline."""

    reason = "deadline"


class ModelBroken(Unavailable):
    """The model's circuit breaker is open: it failed on every row."""

    reason = "model_broken"


class NotReady(Unavailable):
    """The model is not loaded and warmed up, or failed to load."""

    reason = "not_ready"


class ModelProcessGone(Unavailable):
    """The model process ended; Gunicorn starts another."""

    reason = "model_process_gone"


class Stopping(Unavailable):
    """The server is shutting down."""

    reason = "stopping"


def too_many_rows(limit: int, given: int | None = None) -> TooLarge:
    """Return the error for a request of more rows than a queue holds.

    `given` is None if they are not all counted.
    """
    rows = f"more than {limit}" if given is None else given
    return TooLarge(
        f"{rows} rows in one request, and the queue holds {limit}: send at most "
        f"{limit} at a time, or raise BASKET_MAX_ENQUEUED_BATCHES"
    )
