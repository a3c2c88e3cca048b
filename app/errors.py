"""Everything that can go wrong, in one tree; each error knows its HTTP status.

Standard library only, so that every room may import it. The text of an error is
meant for the client: it says what is wrong and where, and holds no path and no
traceback.
"""

from typing import ClassVar


class SettingsError(Exception):
    """A setting that stops the start; the text names the setting."""


class ModelLoadError(Exception):
    """A version that can't be served; the others go on."""


class NotYetLoadable(ModelLoadError):
    """A version that lacks what is not in its files, and is tried again by itself."""


class BasketError(Exception):
    """The root of all errors that are a client's answer."""

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "internal"


class BadInput(BasketError):
    """The request is wrong, and will be wrong the next time too."""

    status = 400
    reason = "bad_input"


class TooLarge(BasketError):
    """More than this server takes in one request."""

    status = 413
    reason = "too_large"


class TooSlow(BasketError):
    """The body has not come within the time for a request."""

    status = 408
    reason = "too_slow"


class Unauthorized(BasketError):
    """No API key, or one that isn't known."""

    status = 401
    reason = "unauthorized"


class Forbidden(BasketError):
    """This server does not do that for anybody, or not without a key."""

    status = 403
    reason = "forbidden"


class Unsupported(BasketError):
    """Known, but not built here."""

    status = 501
    reason = "unsupported"


class UnknownEncoding(Unsupported):
    """A Content-Encoding that is not unpacked here."""


class UnknownModel(BasketError):
    """No such model or version."""

    status = 404
    reason = "unknown_model"


class ModelFailed(BasketError):
    """The model raised on this row."""

    status = 500
    reason = "model_failed"


class WrongOutputs(ModelFailed):
    """The model broke the rule of one row out for each row in, whatever the rows."""


class Late(BasketError):
    """The job's deadline has passed."""

    status = 504
    reason = "late"


class Abandoned(BasketError):
    """The client hung up before its rows were run; nobody reads this answer."""

    status = 503
    reason = "abandoned"


class OutOfDeviceMemory(BasketError):
    """The batch does not fit into the device's memory."""

    status = 507
    reason = "out_of_device_memory"


class Unavailable(BasketError):
    """Not now; `retry_after_s` says in how many seconds it is worth a try."""

    status = 503
    reason = "unavailable"

    def __init__(self, text: str, retry_after_s: int = 1) -> None:
        """Keep the text, and the seconds that become the Retry-After header."""
        super().__init__(text)
        self.retry_after_s = retry_after_s


class QueueFull(Unavailable):
    """The bounded queue has no room for these rows."""

    reason = "queue_full"


class CannotMeetDeadline(Unavailable):
    """The answer would come after the request's deadline."""

    reason = "deadline"


class ModelBroken(Unavailable):
    """The model fails on everything, and is left alone for a while."""

    reason = "model_broken"


class NotReady(Unavailable):
    """The model is not loaded and warm, or failed to load."""

    reason = "not_ready"


class ModelProcessGone(Unavailable):
    """The process that holds the models has died; another takes its place."""

    reason = "model_process_gone"


class Stopping(Unavailable):
    """The server is going down."""

    reason = "stopping"
