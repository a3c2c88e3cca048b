"""The log of one version of a model."""

import logging
import time
from collections.abc import Callable
from typing import Any

_TRACEBACK_EVERY_S = 60.0
_MAX_REASON_CHARS = 200


class ModelLog(logging.LoggerAdapter[logging.Logger]):
    """Begins each line with the model's name and version.

    At most one error a minute has its traceback, so that a client whose rows fail does
    not fill the disk; the others have the first line of its text.
    """

    def __init__(
        self, name: str, version: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Store name and version; a test replaces `clock`."""
        super().__init__(logging.getLogger(__name__), {})
        self._model = name, version
        self._clock = clock
        self._traceback_at = clock()

    def log(
        self,
        level: int,
        msg: object,
        *args: object,
        exc_info: Any = None,
        **rest: Any,
    ) -> None:
        """Write a line; all other methods, such as `warning`, call this one."""
        if exc_info:
            now = self._clock()
            if now < self._traceback_at:
                msg = f"{msg}{_reason(exc_info)}"
                exc_info = None
            else:
                self._traceback_at = now + _TRACEBACK_EVERY_S
        text = f"model %s version %s: {msg}"
        super().log(level, text, *self._model, *args, exc_info=exc_info, **rest)


def _reason(error: object) -> str:
    """Return the first line of an error's text, for a format string."""
    lines = str(error).strip().splitlines() if isinstance(error, BaseException) else []
    return f": {lines[0][:_MAX_REASON_CHARS]}".replace("%", "%%") if lines else ""
