"""Start Basket and other servers as processes on free ports, and send requests."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any

ROOT = Path(__file__).parents[1]
_READY_WITHIN_S = 240
_STOP_WITHIN_S = 10
# Characters of a server's log that are added to an exception.
_LOG_TAIL = 4000
# Below the range from which the kernel takes the ports of clients.
_PORTS = range(20_000, 32_000)
_given: set[int] = set()
_random = SystemRandom()


def free_port() -> int:
    """Return a port that nothing listens on, a different one at each call."""
    while True:
        port = _random.choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            _given.add(port)
            return port


@dataclass
class Reply:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded JSON body."""
        return json.loads(self.body)


@dataclass
class Server:
    """A running server; its output goes to the file `log`.

    Each worker writes `loaded_line` once for each model that it has loaded.
    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    loaded_line: str = " is ready ("
    headers: dict[str, str] = field(default_factory=dict)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60,
    ) -> Reply:
        """Send a request on a new connection and return the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout_s)
        with contextlib.closing(connection):
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())

    def predict(
        self, instances: Any, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """POST rows as JSON to /predict."""
        body = json.dumps({"instances": instances}).encode()
        return self.request("POST", "/predict", body, headers)

    def metric(self, series: str) -> float:
        """Return the value of a series as /metrics writes it, 0 if it is missing."""
        return sum_of(self.request("GET", "/metrics").body.decode(), f"{series} ")

    def wait_until_ready(
        self, workers: int = 1, within_s: float = _READY_WITHIN_S
    ) -> None:
        """Wait until /readyz returns 200 and each worker has loaded a model.

        One worker answers /readyz for all; another may still be loading.
        """
        self.wait_until(lambda: self._is_ready() and self.loaded() >= workers, within_s)

    def wait_until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Poll `condition` until it is true.

        Raises:
            AssertionError: the server ended, or it took too long; with the log.
        """

        def is_true() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended: {self.log.read_text()}")
            return condition()

        wait_until(is_true, within_s, self.log.read_text)

    def loaded(self) -> int:
        """Return how many models have been loaded, over all workers."""
        return self.log.read_text().count(self.loaded_line)

    def wait_until_loaded(self, within_s: float = _READY_WITHIN_S) -> None:
        """Wait until no model is loading any more; some may have failed."""

        def is_loaded() -> bool:
            try:
                return b"is loading" not in self.request("GET", "/readyz").body
            except OSError:
                return False

        self.wait_until(is_loaded, within_s)

    def _is_ready(self) -> bool:
        try:
            return self.request("GET", "/readyz").status == http.HTTPStatus.OK
        except OSError:
            return False

    def workers(self) -> list[int]:
        """Return the process ids of the current workers."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in children.split()]

    def stop(self, timeout_s: float = 60) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


def wait_until(
    condition: Any,
    timeout_s: float,
    describe: Any = lambda: "",
    longest_pause_s: float = 0.1,
) -> None:
    """Poll `condition` until it is true; for other processes, which send no event.

    The pauses are a tenth of the wait so far, as looks take the processor's time, too.

    Raises:
        AssertionError: not true within `timeout_s`; `describe` gives the text.
    """
    began_at = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began_at
        assert waited_s < timeout_s, f"not within {timeout_s} s: {describe()}"
        threading.Event().wait(min(max(waited_s / 10, 0.02), longest_pause_s))


def lives(pid: int) -> bool:
    """Return whether a process runs and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return ") Z " not in stat


def launch(
    command: Sequence[str],
    log: Path,
    *,
    own_session: bool,
    root: Path = ROOT,
    environ: Mapping[str, str] | None = None,
    **settings: str,
) -> subprocess.Popen[bytes]:
    """Start a command in `root` that writes to `log`.

    Of BASKET_ variables it gets only `settings`; `environ` adds others.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("BASKET_")}
    named = {f"BASKET_{name.upper()}": value for name, value in settings.items()}
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=root,
            env=inherited | named | dict(environ or {}),
            stdout=output,
            stderr=output,
            start_new_session=own_session,
        )


def workers_in(args: Iterable[str]) -> int:
    """Return the number of workers in Gunicorn's arguments."""
    named = [arg for arg in args if arg.startswith("--workers=")]
    return int(named[-1].partition("=")[2]) if named else 1


def installed(program: str) -> str:
    """Return the path of a program of this environment."""
    return str(Path(sys.executable).parent / program)


def serving(
    *args: str, app: str = "wsgi:app", **rest: Any
) -> contextlib.AbstractContextManager[Server]:
    """Run `gunicorn wsgi:app *args`; `rest` is for `running`."""
    port = free_port()
    command = [installed("gunicorn"), app, f"--bind=127.0.0.1:{port}", *args]
    return running(command, port, **rest)


@contextlib.contextmanager
def running(  # noqa: PLR0913 # all but two have a default
    command: Sequence[str],
    port: int,
    *,
    ready: bool = True,
    check_exit: bool = True,
    own_session: bool = False,
    root: Path = ROOT,
    environ: Mapping[str, str] | None = None,
    **settings: str,
) -> Iterator[Server]:
    """Run a server with BASKET_<NAME>=value for each setting.

    Yield it when Basket is ready, or at once if `ready` is false. A server that still
    runs at the end is stopped, and has to exit with 0 unless `check_exit` is false.
    With `own_session` Ctrl-C in the terminal does not reach it, and its whole process
    group is killed at the end.

    Raises:
        AssertionError: it ended or was not ready in time; the log is in the text.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        process = launch(
            command,
            log,
            own_session=own_session,
            root=root,
            environ=environ,
            **settings,
        )
        server = Server(process, port, log)
        if settings.get("model_process") == "shared":
            server.loaded_line = "the models of the model process are known"
        try:
            if ready:
                server.wait_until_ready(workers_in(command))
            yield server
            if process.poll() is None and check_exit:
                assert server.stop() == 0, log.read_text()
        except BaseException as error:
            error.add_note(f"The server's log ends:\n{log.read_text()[-_LOG_TAIL:]}")
            raise
        finally:
            _end(process, own_session=own_session)


def _end(process: subprocess.Popen[bytes], *, own_session: bool) -> None:
    if own_session:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_WITHIN_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()


def simulated_models(folder: Path, **models: Mapping[str, Any]) -> str:
    """Write a model folder with one simulated model for each keyword."""
    for name, simulation in models.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        (version / "simulated.json").write_text(json.dumps(simulation))
    return str(folder)


def metric_sum(server: Server, name: str) -> float:
    """Return the sum of all series of a metric."""
    text = server.request("GET", "/metrics").body.decode()
    return sum_of(text, f"{name}{{", f"{name} ")


def sum_of(metrics: str, *begins: str) -> float:
    """Return the sum of the series that begin so, in the text of /metrics."""
    lines = (line for line in metrics.splitlines() if line.startswith(begins))
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def wait_for_metric(server: Server, name: str, value: float) -> None:
    """Wait until the sum of a metric is `value`: processes write theirs later."""
    wait_until(
        lambda: metric_sum(server, name) == value,
        60,
        lambda: f"{name} {metric_sum(server, name)}",
    )
