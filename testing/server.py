"""Basket as its users run it: a server as a process, on a free port."""

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any

ROOT = Path(__file__).parents[1]
_READY_WITHIN_S = 240
# Characters of a server's log that come with what went wrong.
_TOLD = 4000


# Below those that the system gives to clients, who would be in the way.
_PORTS = range(20_000, 32_000)
_given: set[int] = set()
_random = SystemRandom()


def free_port() -> int:
    """A port that nobody listens on now, and another one each time."""
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
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """A running server; `log` is where it writes what it has to say."""

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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout_s)
        with contextlib.closing(connection):
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())

    def predict(
        self, instances: Any, headers: Mapping[str, str] | None = None
    ) -> Reply:
        body = json.dumps({"instances": instances}).encode()
        return self.request("POST", "/predict", body, headers)

    def metric(self, series: str) -> float:
        """The value of a series as /metrics writes it, 0 where it is missing."""
        text = self.request("GET", "/metrics").body.decode()
        for line in text.splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def wait_until_ready(self, workers: int = 1) -> None:
        """Until /readyz says so, and each of so many workers has loaded a model.

        One worker answers /readyz for all; a sibling may still be loading.
        """

        def are_ready() -> bool:
            return self._is_ready() and self.loaded() >= workers

        wait_until(are_ready, _READY_WITHIN_S, self.log.read_text)

    def loaded(self) -> int:
        """How many models have become ready, over all workers: each logs it once."""
        return self.log.read_text().count(self.loaded_line)

    def wait_until_loaded(self) -> None:
        """Until no model is loading any more; some may have failed."""

        def is_loaded() -> bool:
            try:
                return b"is loading" not in self.request("GET", "/readyz").body
            except OSError:
                return False

        wait_until(is_loaded, _READY_WITHIN_S, self.log.read_text)

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended: {self.log.read_text()}")
        try:
            return self.request("GET", "/readyz").status == http.HTTPStatus.OK
        except OSError:
            return False

    def workers(self) -> list[int]:
        """The process ids of the workers that live now."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in children.split()]

    def stop(self, timeout_s: float = 60) -> int:
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


def wait_until(condition: Any, timeout_s: float, describe: Any = lambda: "") -> None:
    """Ask again and again: for what another process does, which no event tells."""
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_at, f"not within {timeout_s} s: {describe()}"
        threading.Event().wait(0.02)


def lives(pid: int) -> bool:
    """Whether a process runs, and has not only been left by its parent."""
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
    **settings: str,
) -> subprocess.Popen[bytes]:
    """Start a command in `root` that writes to `log`; only `settings` are BASKET_."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("BASKET_")}
    environ |= {f"BASKET_{name.upper()}": value for name, value in settings.items()}
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=root,
            env=environ,
            stdout=output,
            stderr=output,
            start_new_session=own_session,
        )


def workers_in(args: Iterable[str]) -> int:
    """How many workers Gunicorn's arguments ask for."""
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
def running(
    command: Sequence[str],
    port: int,
    *,
    ready: bool = True,
    check_exit: bool = True,
    own_session: bool = False,
    root: Path = ROOT,
    **settings: str,
) -> Iterator[Server]:
    """Run a server with BASKET_<NAME>=value for each setting.

    One that still runs at the end is stopped, and has to exit with 0 unless
    `check_exit` is false. With `own_session` Ctrl-C in the terminal does not reach it.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        process = launch(command, log, own_session=own_session, root=root, **settings)
        server = Server(process, port, log)
        try:
            if ready:
                if settings.get("model_process") == "shared":
                    server.loaded_line = "the models of the model process are here"
                server.wait_until_ready(workers_in(command))
            yield server
            if process.poll() is None and check_exit:
                assert server.stop() == 0, log.read_text()
        except BaseException as error:
            error.add_note(f"The server's log ends:\n{log.read_text()[-_TOLD:]}")
            raise
        finally:
            if process.poll() is None:
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
    """The sum of all series of one metric name."""
    text = server.request("GET", "/metrics").body.decode()
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith((f"{name}{{", f"{name} "))
    )


def wait_for_metric(server: Server, name: str, value: float) -> None:
    """Until the sum over all processes has a value; each writes its own a bit later."""
    wait_until(
        lambda: metric_sum(server, name) == value,
        10,
        lambda: f"{name} {metric_sum(server, name)}",
    )
