"""A set-up's server: started, ready in all its workers, and stopped in order."""

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from bench.loadtest.machine import lacks_memory_for
from bench.loadtest.measurement import Setup
from testing.server import Server, serving, wait_until, workers_in

_ASK_WITHIN_S = 5


class ServerProblem(Exception):
    """A server that can't be measured; the text goes into the report."""


@contextlib.contextmanager
def running(
    setup: Setup, model: Path, *, ready_within_s: float, stopped: threading.Event
) -> Iterator[Server]:
    """Serve the folder that `model` is in the way `setup` says.

    Once `stopped` is set it is given before it is ready.

    Raises:
        ServerProblem: too little memory, or not ready within `ready_within_s`.
    """
    workers = workers_in(setup.arguments)
    lack = lacks_memory_for(model, workers)
    if lack is not None:
        raise ServerProblem(lack)
    settings = {**setup.settings, "model_dir": str(model.parent)}
    with serving(
        *setup.arguments, ready=False, check_exit=False, own_session=True, **settings
    ) as server:
        try:
            _wait_until_ready(server, workers, ready_within_s, stopped)
            yield server
        finally:
            # A server that does not end by itself is killed by `serving`.
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.stop()


def why_not_ready(server: Server) -> str:
    """What the server has to say, in one line."""
    status = server.process.poll()
    if status is not None:
        return f"the server ended with status {status}: {_last_line(server)}"
    try:
        reply = server.request("GET", "/readyz", timeout_s=_ASK_WITHIN_S)
        return str(reply.json().get("error", f"/readyz answers {reply.status}"))
    except (OSError, ValueError) as error:
        return f"no answer from /readyz ({error}); the log ends: {_last_line(server)}"


def _wait_until_ready(
    server: Server, workers: int, within_s: float, stopped: threading.Event
) -> None:
    def is_decided() -> bool:
        return (
            stopped.is_set()
            or server.process.poll() is not None
            or _has_decided(server, workers)
        )

    try:
        wait_until(is_decided, within_s)
    except AssertionError:
        why = why_not_ready(server)
        raise ServerProblem(f"not ready within {within_s:g} s: {why}") from None
    if not stopped.is_set() and not _is_ready(server):
        raise ServerProblem(why_not_ready(server))


def _has_decided(server: Server, workers: int) -> bool:
    """Whether all workers have their model, or a model has failed."""
    try:
        reply = server.request("GET", "/readyz", timeout_s=_ASK_WITHIN_S)
    except OSError:
        return False
    if reply.status != HTTPStatus.OK:
        return b"is loading" not in reply.body
    # /readyz is answered by one worker.
    return server.loaded() >= workers


def _is_ready(server: Server) -> bool:
    try:
        reply = server.request("GET", "/readyz", timeout_s=_ASK_WITHIN_S)
    except OSError:
        return False
    return reply.status == HTTPStatus.OK


def _last_line(server: Server) -> str:
    lines = server.log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "nothing"
