"""Model processes and web workers in one process, for tests of the shared model."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from app import run_dir
from app.batching.job import Job
from app.engines.base import Engine, Tensors
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.loading.opener import Opener
from app.repository.routing import Target
from app.repository.served import ServedModel
from app.settings import Settings
from app.settings.model_config import ModelConfig
from app.shared_model import catalog_json
from app.shared_model.connection import Connection
from app.shared_model.frames import Buffer, Frame, encode
from app.shared_model.model_process import ModelProcess
from app.shared_model.published_catalog import PublishedCatalog
from app.shared_model.remote_loader import RemoteLoader
from app.shared_model.row_count import RowCount
from tests.support.engines import Echo
from tests.support.jobs import Notes, job
from tests.support.rollouts import loader_of

TIMEOUT_S = 10


class Machine:
    """A model folder, the model processes that serve it, and web workers."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.models = folder / "models"
        self.models.mkdir()
        self.settings = Settings(model_dir=self.models, max_batch_size=4, **settings)
        self.engines: dict[tuple[str, str], Engine | BaseException] = {}
        self.observer = Notes()
        self._loaders: list[RemoteLoader] = []
        self.path = str(folder / "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()

    def add(
        self, name: str, version: int = 1, engine: Any = None, toml: str = ""
    ) -> Any:
        """Create a version's folder, and return its engine."""
        (self.models / name / str(version)).mkdir(parents=True)
        (self.models / name / "basket.toml").write_text(toml)
        self.engines[name, str(version)] = engine = engine or Echo()
        return engine

    def process(self) -> ModelProcess:
        """Start a model process, whose loader scans only when told."""
        self.catalog = PublishedCatalog(self.settings.default_model)
        opener = Opener(lambda *_: self.observer, self._open)
        self.loader = loader_of(self.settings, self.catalog, opener)
        limit_s = self.settings.request_timeout_ms / 1000
        health = Health(self.catalog, limit_s, run_dir.Notes())
        process = ModelProcess(self.catalog, self.loader, self.listener, health)
        process.start()
        return process

    def worker(self) -> tuple[Catalog, RemoteLoader]:
        """Start a web worker; return its catalog and loader when models are ready."""
        catalog, loader = self.starting_worker()
        assert loader.wait(TIMEOUT_S)
        return catalog, loader

    def starting_worker(self, processes: int = 1) -> tuple[Catalog, RemoteLoader]:
        """Start a web worker, and return its catalog and loader at once."""
        catalog = Catalog(self.settings.default_model)
        paths = [self.path] * processes
        loader = RemoteLoader(self.settings, catalog, lambda *_: Notes(), paths)
        loader.start()
        self._loaders.append(loader)
        return catalog, loader

    def close(self) -> None:
        for engine in self.engines.values():
            if isinstance(engine, Echo):
                engine.unblock()
        for loader in self._loaders:
            loader.close(0)
        self.listener.close()

    def _open(self, folder: Path, _: Settings) -> Engine:
        engine = self.engines[folder.parent.name, folder.name]
        if isinstance(engine, BaseException):
            raise engine
        return engine


class Peer:
    """One end of a connection, which sends and receives frame by frame."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        connection.sock.settimeout(TIMEOUT_S)
        self._received: list[Frame] = []

    def send(self, meta: Mapping[str, Any], tensors: Tensors | None = None) -> None:
        self.connection.send(encode(Frame(meta, tensors or {})))

    def receive(self) -> Frame:
        """Return the next frame."""
        if not self._received:
            self._received = self.connection.receive()
        return self._received.pop(0)

    def close(self) -> None:
        self.connection.close()


class ScriptedProcess:
    """A model process with a model m, whose messages the test sends one by one."""

    def __init__(self, machine: Machine) -> None:
        self._listener = machine.listener
        self.rows = RowCount()

    @classmethod
    def followed(cls, machine: Machine) -> tuple[Catalog, RemoteLoader, Any]:
        """Return a web worker's catalog and loader, and the process with its model."""
        catalog, loader = machine.starting_worker()
        process = cls(machine)
        process.publish_model()
        return catalog, loader, process

    def accept(self) -> None:
        """Accept a web worker's connection."""
        self._listener.settimeout(TIMEOUT_S)
        sock, _ = self._listener.accept()
        self.peer = Peer(Connection(sock))
        assert "subscribe" in self.peer.receive().meta
        socket.send_fds(sock, [b"."], [self.rows.fd])

    def publish_model(self) -> None:
        """Accept a web worker's connection, and publish version 1 of the model."""
        self.accept()
        self.publish(1, {"1": self.version("echo")})

    @staticmethod
    def version(platform: str) -> dict[str, Any]:
        """Return an available version as it is published."""
        engine, settings, unused = Echo(), Settings(), Notes()
        parts = platform, engine.signatures, ModelConfig(settings)
        served = ServedModel("m", 1, *parts, unused, unused)  # type: ignore[arg-type]
        values = catalog_json.version_to_json(served)
        return {"state": "AVAILABLE", "error": "", "served": values}

    def send_update(self, revision: int, versions: Mapping[str, Any]) -> None:
        """Send an update in which the model has these versions."""
        model = {
            **{"problem": "", "settled": True, "unloaded": False},
            **{
                "labels": {},
                "traffic": {},
                "capture": None,
                "rollout": None,
                "versions": versions,
            },
        }
        update = {"models": {"m": model}, "folder_problem": ""}
        self.peer.send({"revision": revision, **update})

    def publish(self, revision: int, versions: Mapping[str, Any]) -> None:
        """Send an update, and wait until the web worker acknowledges it."""
        self.send_update(revision, versions)
        self.expect_acknowledged(revision)

    def expect_acknowledged(self, revision: int) -> None:
        assert self.peer.receive().meta == {"acknowledge": revision}

    def receive_job(self) -> Frame:
        """Return the call of the next job."""
        frame = self.peer.receive()
        assert frame.meta["predict"] == ["m", 1]
        return frame

    def reply(self, *calls: Frame) -> None:
        """Send jobs their rows back, in one write."""
        buffers: list[Buffer] = []
        for call in calls:
            number = {"number": call.meta["number"]}
            meta = {**number, "batch_rows": 1, "times": (1.0, 2.0)}
            buffers += encode(Frame(meta, {"output": call.tensors["input"]}))
        self.peer.connection.send(buffers)

    def die(self) -> None:
        self.peer.close()


def submit(
    catalog: Catalog, *values: float, target: Target | None = None, **rest: Any
) -> Job:
    """Submit a job to a web worker's default model, or to a target."""
    with catalog.lease(target or Target()) as model:
        one = job(*values, **rest)
        model.runner.submit(one)
        return one


def rows_in_process(catalog: Catalog) -> int:
    """Return the row count of the model process, as a web worker reads it."""
    with catalog.lease(Target()) as model:
        (channel,) = model.runner.channels()  # type: ignore[attr-defined]
        return int(channel.rows())


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start work in a thread; return a function that waits for its result."""
    future: Future[Any] = Future()
    threading.Thread(target=lambda: future.set_result(work())).start()
    return partial(future.result, TIMEOUT_S)


@contextlib.contextmanager
def failing_threads(names: set[str], patch: Any) -> Iterator[None]:
    """Let the first thread of each name fail to start, and check that all did."""
    start = threading.Thread.start

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name in names:
            names.remove(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    patch.setattr(threading.Thread, "start", start_or_fail)
    yield
    assert not names
