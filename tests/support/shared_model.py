"""Model processes and web workers in one process, for tests of the shared model."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from app import run_dir
from app.batching.job import Job
from app.engines.base import Engine, Tensors
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.loading.opener import Opener
from app.repository.routing import Target
from app.repository.served import Model, ServedModel, State
from app.settings import Settings
from app.settings.model_config import ModelConfig
from app.shared_model.frames import HEADER_BYTES, Frame, decode, encode, sizes
from app.shared_model.model_process import ModelProcess
from app.shared_model.published_catalog import (
    CatalogState,
    PublishedCatalog,
    PublishedModel,
    PublishedState,
    PublishedVersion,
)
from app.shared_model.remote_loader import RemoteLoader
from app.shared_model.row_count import RowCount
from tests.support.engines import Echo
from tests.support.jobs import Notes, job
from tests.support.rollouts import loader_of

TIMEOUT_S = 10


class EventLoop:
    """An event loop in a thread of its own, as a web worker has one."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="loop")
        self.thread.start()

    def call(self, work: Callable[[], Any]) -> Any:
        """Call a function on the event loop, and return its result."""

        async def on_loop() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(TIMEOUT_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Machine:
    """A model folder, the model processes that serve it, and web workers.

    With a `loop` the web workers read replies on it, else in threads.
    """

    def __init__(
        self, folder: Path, loop: EventLoop | None = None, **settings: Any
    ) -> None:
        self.models = folder / "models"
        self.models.mkdir()
        self.settings = Settings(model_dir=self.models, max_batch_size=4, **settings)
        self.engines: dict[tuple[str, str], Engine | BaseException] = {}
        self.observer = Notes()
        self.loop = loop
        self._loaders: list[RemoteLoader] = []
        self._processes: list[ModelProcess] = []
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

    def process(self, **rest: Any) -> ModelProcess:
        """Start a model process, whose loader scans only when told."""
        self.catalog = PublishedCatalog(self.settings.default_model)
        opener = Opener(lambda *_: self.observer, self._open)
        self.loader = loader_of(self.settings, self.catalog, opener)
        limit_s = self.settings.request_timeout_ms / 1000
        health = Health(self.catalog, limit_s, run_dir.Notes())
        process = ModelProcess(self.catalog, self.loader, self.listener, health, **rest)
        process.start()
        self._processes.append(process)
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
        loader = RemoteLoader(
            self.settings, catalog, lambda *_: Notes(), paths, retry_s=0.01
        )
        loader.start()
        if self.loop is not None:
            loop = self.loop
            loop.call(lambda: loader.attach(loop.loop))
        self._loaders.append(loader)
        return catalog, loader

    def close(self) -> None:
        for engine in self.engines.values():
            if isinstance(engine, Echo):
                engine.unblock()
        for loader in self._loaders:
            loader.close(0)
        for process in self._processes:
            process.close(0)
        self.listener.close()

    def _open(self, folder: Path, _: Settings) -> Engine:
        engine = self.engines[folder.parent.name, folder.name]
        if isinstance(engine, BaseException):
            raise engine
        return engine


class Peer:
    """One end of a connection, which sends and receives frame by frame."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(TIMEOUT_S)

    @classmethod
    def connect(cls, machine: Machine) -> "Peer":
        """Connect to a model process."""
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(machine.path)
        return cls(sock)

    @classmethod
    def subscribed(cls, machine: Machine) -> "Peer":
        """Connect as a web worker, and receive the first update."""
        peer = cls.connect(machine)
        peer.send({"subscribe": True})
        message, fds, _, _ = socket.recv_fds(peer.sock, 1, 1)
        assert message == b"."
        peer.rows = RowCount(fds[0])
        assert "catalog" in peer.receive().meta
        return peer

    def send(self, meta: Mapping[str, Any], tensors: Tensors | None = None) -> None:
        self.sock.sendall(b"".join(encode(Frame(meta, tensors or {}))))

    def submit(self, one: Job, number: int = 1) -> None:
        """Send a job for version 1 of model m."""
        self.send(
            {
                "predict": ["m", 1],
                "number": number,
                "signature": one.signature_name,
                "deadline": one.deadline,
                "client": "",
                "reserve_s": 0.0,
                "traceparent": None,
            },
            one.inputs,
        )

    def receive(self) -> Frame:
        """Return the next frame.

        Raises:
            EOFError: the other end has closed.
        """
        header = self.exactly(HEADER_BYTES)
        head_size, size = sizes(header)
        whole = header + self.exactly(size - HEADER_BYTES)
        return decode(memoryview(whole), head_size)

    def is_at_end(self) -> bool:
        """Return whether the other end has closed, and sent nothing more."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()

    def exactly(self, size: int) -> bytearray:
        """Return the next bytes, as `receive` does."""
        data = bytearray(size)
        missing = memoryview(data)
        while missing:
            count = self.sock.recv_into(missing)
            if not count:
                raise EOFError
            missing = missing[count:]
        return data


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
        self.peer = Peer(sock)
        assert "subscribe" in self.peer.receive().meta
        socket.send_fds(sock, [b"."], [self.rows.fd])

    def publish_model(self) -> None:
        """Accept a web worker's connection, and publish version 1 of the model."""
        self.accept()
        self.publish(1, self.version("echo"))

    @staticmethod
    def version(
        platform: str = "echo",
        number: int = 1,
        state: State = State.AVAILABLE,
        **rest: Any,
    ) -> PublishedState:
        """Return a version as it is published."""
        served = ServedModel(
            name="m",
            version=number,
            platform=platform,
            signatures=Echo().signatures,
            config=ModelConfig(Settings()),
            runner=None,  # type: ignore[arg-type]
            observer=Notes(),
        )
        published = replace(PublishedVersion.of(served), **rest)
        return PublishedState(number, state, "", published)

    def send_update(self, revision: int, *versions: PublishedState) -> None:
        """Send an update in which the model has these versions."""
        model = PublishedModel(Model(settled=True), versions)
        state = CatalogState({"m": model}, "")
        self.peer.send({"revision": revision, "catalog": state})

    def publish(self, revision: int, *versions: PublishedState) -> None:
        """Send an update, and wait until the web worker acknowledges it."""
        self.send_update(revision, *versions)
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
        self.peer.sock.sendall(self.encoded_replies(*calls))

    @staticmethod
    def encoded_replies(*calls: Frame) -> bytes:
        """Return the bytes of `reply`."""
        written = b""
        for call in calls:
            number = {"number": call.meta["number"]}
            meta = {**number, "batch_rows": 1, "times": (1.0, 2.0)}
            written += b"".join(encode(Frame(meta, {"output": call.tensors["input"]})))
        return written

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
