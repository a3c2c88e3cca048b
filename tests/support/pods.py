"""Containers of manifests as processes of this machine, run as by the kubelet."""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from testing.server import Server, free_port, installed, launch, wait_until
from tests.support.manifests import ROOT, Manifest, container

DOCKERFILE = (ROOT / "Dockerfile").read_text()
# Until nodes and clients stop sending new connections to a pod that ends.
PROPAGATION_S = 3
_CLIENTS = 8


class Pod:
    """A pod with one container, whose port is a free one of this machine."""

    def __init__(
        self,
        manifest: Manifest,
        folder: Path,
        replacing: Mapping[str, str],
        **settings: str,
    ) -> None:
        """Start the container.

        `replacing` maps texts of the manifest to others; `settings` stand for what a
        volume would bring.
        """
        text = json.dumps(container(manifest))
        for each, other in replacing.items():
            assert each in text, each
            text = text.replace(each, other)
        self.spec = json.loads(text)
        self.port = free_port()
        (port,) = self.spec["ports"]
        image = dict(re.findall(r'^ENV (GUNICORN_CMD_ARGS)="(.*)"$', DOCKERFILE, re.M))
        self._container_port = str(port["containerPort"])
        args = [self._bound(arg) for arg in self.spec["args"]]
        environ = {each["name"]: each["value"] for each in self.spec.get("env", ())}
        environ = {name: self._bound(each) for name, each in (image | environ).items()}
        command = [installed(args[0]), *args[1:]]
        log = folder / "log"
        self.process = launch(
            command, log, own_session=True, environ=environ, **settings
        )
        self.server = Server(self.process, self.port, log)

    def _bound(self, text: str) -> str:
        address = f"--bind=0.0.0.0:{self._container_port}"
        return text.replace(address, f"--bind=127.0.0.1:{self.port}")

    def probe(self, name: str) -> bool:
        """Ask once, as httpGet does: a status from 200 to 399 is a success."""
        probe = self.spec[f"{name}Probe"]
        client = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=probe.get("timeoutSeconds", 1)
        )
        try:
            client.request("GET", probe["httpGet"]["path"])
            return 200 <= client.getresponse().status < 400
        except OSError:
            return False
        finally:
            client.close()

    def wait_until_ready(self) -> None:
        """Wait for the startup probe within its time, and then for readiness."""
        probe = self.spec["startupProbe"]
        within_s = probe["periodSeconds"] * probe["failureThreshold"]
        for name in ("startup", "readiness"):
            self.server.wait_until(lambda name=name: self.probe(name), within_s)
        assert self.probe("liveness")

    def end(self, grace_period_s: float) -> int:
        """Run preStop, send SIGTERM, and return the exit status.

        Raises:
            TimeoutExpired: both took longer than the grace period, so that the kubelet
                would have killed it.
        """
        began_at = time.monotonic()
        time.sleep(self.spec["lifecycle"]["preStop"]["sleep"]["seconds"])
        self.process.terminate()
        return self.process.wait(began_at + grace_period_s - time.monotonic())


@contextlib.contextmanager
def pod(
    manifest: Manifest, replacing: Mapping[str, str] | None = None, **settings: str
) -> Iterator[Pod]:
    """Run the container of a manifest until it is ready, and kill it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        started = Pod(manifest, Path(folder), replacing or {}, **settings)
        try:
            started.wait_until_ready()
            yield started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.process.pid, signal.SIGKILL)
            started.process.wait()


class Endpoints:
    """The pods that new connections go to, and clients that send all the time."""

    def __init__(self, body: bytes) -> None:
        """Store the body of the clients' requests."""
        self.ready: list[Pod] = []
        self.lost: list[str] = []
        self.answers: dict[int, int] = {}
        self._body = body
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(bool(number % 2),))
            for number in range(_CLIENTS)
        ]

    def __enter__(self) -> "Endpoints":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def remove_later(self, ending: Pod) -> None:
        """Remove a pod as the cluster does: beside its end, and after a while."""
        timer = threading.Timer(PROPAGATION_S, self.ready.remove, [ending])
        timer.daemon = True
        timer.start()

    def wait_for_answers(self, of: Pod, more: int) -> None:
        """Wait until a pod has answered so many requests more."""
        before = self.answers.get(of.port, 0)
        wait_until(lambda: self.answers.get(of.port, 0) >= before + more, 60)

    def _send(self, keeps: bool) -> None:
        """Send requests; `keeps`: on one connection for as long as the server lets."""
        while not self._over.is_set():
            port = random.choice(list(self.ready)).port
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            with contextlib.closing(connection):
                try:
                    self._ask(connection)
                    # None: the response said close.
                    while keeps and connection.sock and not self._over.is_set():
                        self._ask(connection)
                except (OSError, http.client.HTTPException) as error:
                    self.lost.append(f"{port}: {error!r}")

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        connection.request("POST", "/predict", self._body)
        response = connection.getresponse()
        text = response.read()
        if response.status != http.HTTPStatus.OK:
            self.lost.append(f"{connection.port}: {response.status} {text!r}")
        self.answers[connection.port] = self.answers.get(connection.port, 0) + 1
