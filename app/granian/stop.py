"""An orderly stop of Granian's worker, which loses nobody."""

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable

_STOPS = (signal.SIGTERM, signal.SIGINT)
# Seconds from a signal until Granian hears of it: it closes connections of which it
# has read nothing, also those whose request is there.
_TAKE_IN_S = 1.0
# Seconds kept before --workers-kill-timeout to answer 503 to who is left.
_LAST_ANSWERS_S = 2.0
# Seconds between looks at whether Granian's main process lives.
_TICK_S = 1.0


def hold_signals() -> None:
    """Keep signals to stop until `stop_in_order` takes them; in the main thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)


def stop_in_order(close: Callable[..., None], kill_after_s: float | None) -> None:
    """Answer who has connected before Granian stops, then who can't be finished.

    `close(timeout_s)` answers 503 to all that wait, before Granian kills this worker,
    `kill_after_s` seconds after the signal.
    """
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
    # The event loop has its own way to hear of a signal, whatever thread gets it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    signal.raise_signal(signal.SIGTERM)
    if kill_after_s is not None:
        time.sleep(max(kill_after_s - _TAKE_IN_S - _LAST_ANSWERS_S, 0))
        close(timeout_s=0)
