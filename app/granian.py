"""Granian's side of Basket: checks, log, GPU, orderly stop, and a complete environ.

Granian has no file with hooks. What gunicorn.conf.py does before the workers start is
done here in the only worker, when it imports wsgi.py.
"""

import errno
import io
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from app import advice, gpus
from app.errors import SettingsError
from app.settings import Settings, unknown_variables

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from _typeshed.wsgi import StartResponse, WSGIApplication

_STOPS = (signal.SIGTERM, signal.SIGINT)
# Seconds from a signal until Granian hears of it: it closes connections of which it
# has read nothing, also those whose request is there.
_TAKE_IN_S = 1.0
# Seconds kept before --workers-kill-timeout to answer 503 to who is left.
_LAST_ANSWERS_S = 1.0
_LEAST_KILL_S = 3
# Seconds between looks at whether Granian's main process lives.
_TICK_S = 1.0


def is_serving() -> bool:
    """Say whether this process is a worker of Granian."""
    return "granian" in sys.modules


def prepare() -> None:
    """Check the settings and the command line, then choose the GPU.

    Before the application is built, which reads what is set here.

    Raises:
        SettingsError: what can't be, or can't be with Granian.
    """
    log = logging.getLogger("app")
    granians = logging.getLogger("_granian")
    log.handlers, log.level = granians.handlers, granians.level
    options = _options()
    settings = Settings.from_environment()
    _refuse(options, settings)
    used = gpus.choose(settings.gpus, gpus.visible())
    for line in advice.lines(settings, used, _threads(options), "--blocking-threads"):
        log.info(line)
    for line in unknown_variables():
        log.warning(line)
    if used:
        gpus.pin(used[0])
        log.info("the worker uses GPU %s", used[0])
    # One process counts for itself; the files are for several.
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)


def hold_signals() -> None:
    """Keep signals to stop until `stop_in_order` takes them; in the main thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)


def stop_in_order(close: Callable[..., None]) -> None:
    """Answer who has connected before Granian stops, then who can't be finished.

    `close(timeout_s)` answers 503 to all that wait.
    """
    kill_after_s = _options()["workers_kill_timeout"]
    waiting = threading.Thread(
        target=_stop, args=(close, kill_after_s), name="stop", daemon=True
    )
    waiting.start()


def _stop(close: Callable[..., None], kill_after_s: float | None) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # workers are processes of Granian's main process
    # Without that one, nobody else would end this worker, which holds the port.
    while signal.sigtimedwait(_STOPS, _TICK_S) is None and parent.is_alive():
        pass
    time.sleep(_TAKE_IN_S)
    # The one that Granian has set; it may be called in any thread.
    handler = signal.getsignal(signal.SIGTERM)
    assert callable(handler)
    handler(signal.SIGTERM, None)
    if kill_after_s is not None:
        time.sleep(max(kill_after_s - _TAKE_IN_S - _LAST_ANSWERS_S, 0))
        close(timeout_s=0)


class CompleteEnviron:
    """WSGI middleware that adds to Granian's environ what Gunicorn's has.

    That is the path with percent signs, and a body that tells when it is cut off.
    """

    def __init__(self, application: "WSGIApplication") -> None:
        """Store whom to call."""
        self._application = application

    def __call__(
        self, environ: dict[str, Any], start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Answer a request."""
        path = environ["SCRIPT_NAME"] + environ["PATH_INFO"]
        # As it came but for %2F and %3A, which Granian has decoded for good.
        environ["RAW_URI"] = quote(path.encode("latin-1"), safe="/:")
        if length := environ.get("CONTENT_LENGTH"):
            environ["wsgi.input"] = Body(environ["wsgi.input"], int(length))
        return self._application(environ, start_response)


class Body(io.RawIOBase):
    """A body of known length.

    Granian ends one that is cut off as if it were whole.
    """

    def __init__(self, stream: Any, length: int) -> None:
        """Store where to read from; `length` is in bytes."""
        self._stream = stream
        self._left = length

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer, or as much of it as the body has; 0: the end.

        Raises:
            ConnectionResetError: the client hung up before the end.
        """
        view = memoryview(buffer).cast("B")[: self._left]
        if not view:
            return 0
        data = self._stream.read(len(view))
        if len(data) < len(view):
            raise ConnectionResetError(errno.ECONNRESET, "it is cut off")
        view[:] = data
        self._left -= len(data)
        return len(data)


def _options() -> dict[str, Any]:
    """What the command line and GRANIAN_ variables say, read as Granian reads them."""
    import click  # noqa: PLC0415
    from granian.cli import cli  # noqa: PLC0415

    try:
        context = cli.make_context(
            "granian", sys.argv[1:], auto_envvar_prefix="GRANIAN"
        )
    except (click.ClickException, click.exceptions.Exit):
        raise SettingsError("Granian is to be started by its own command") from None
    return context.params


def _refuse(options: dict[str, Any], settings: Settings) -> None:
    if options["interface"] != "wsgi":
        raise SettingsError("Granian serves this with --interface wsgi alone")
    if options["workers"] > 1:
        raise SettingsError(
            f"--workers {options['workers']}: with Granian it is 1, and "
            "--blocking-threads says how many requests it has at a time; Gunicorn "
            "takes more workers"
        )
    kill_after_s = options["workers_kill_timeout"]
    if kill_after_s is not None and kill_after_s < _LEAST_KILL_S:
        raise SettingsError(
            f"--workers-kill-timeout {kill_after_s}: an orderly stop takes "
            f"{_LEAST_KILL_S} s or more"
        )
    if settings.model_process == "shared":
        raise SettingsError(
            "BASKET_MODEL_PROCESS=shared: model processes want Gunicorn"
        )


def _threads(options: dict[str, Any]) -> int:
    """How many requests have a thread at a time; Granian's rule where none is said."""
    backpressure = options["backpressure"] or options["backlog"]
    return int(options["blocking_threads"] or max(backpressure // 2, 1))
