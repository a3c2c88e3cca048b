"""Other servers as processes: started, waited for, ended with all their children."""

import contextlib
import http.client
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from testing.server import wait_until

_READY_WITHIN_S = 180
_END_WITHIN_S = 10


class DidNotStart(Exception):
    """A server that ended, or never answered; the text has the end of its log."""


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    environ: Mapping[str, str],
    cwd: Path,
    is_ready: Callable[[], bool],
) -> Iterator[int]:
    """Run a command in a session of its own; its process id, once it is ready.

    `environ` comes on top of this process's own.

    Raises:
        DidNotStart: it ended by itself, or was not ready within three minutes.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603
                [str(part) for part in command],
                cwd=cwd,
                env={**os.environ, **environ},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            wait(process, log, is_ready)
            yield process.pid
        finally:
            _end(process)


def answers(
    port: int, path: str, body: bytes | None = None, content_type: str = ""
) -> bool:
    """Whether a GET, or a POST where there is a body, gets a 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    method = "GET" if body is None else "POST"
    with contextlib.closing(connection):
        try:
            connection.request(method, path, body, {"Content-Type": content_type})
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False


def wait(
    process: "subprocess.Popen[bytes]", log: Path, is_ready: Callable[[], bool]
) -> None:
    """Until a process is ready.

    Raises:
        DidNotStart: it ended by itself, or was not ready within three minutes.
    """
    try:
        wait_until(lambda: process.poll() is not None or is_ready(), _READY_WITHIN_S)
    except AssertionError:
        raise DidNotStart(f"not ready within {_READY_WITHIN_S} s{_said(log)}") from None
    if process.poll() is not None:
        raise DidNotStart(f"ended with {process.returncode}{_said(log)}")


def _said(log: Path) -> str:
    return f"; its log says: {telling_line(log.read_text(errors='replace'))}"


def telling_line(said: str) -> str:
    """Of what a program said, the last line with an error, or else the last one."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return ([*lines, *errors] or ["nothing"])[-1]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end, then end whatever is left of its session."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_WITHIN_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
