"""The servers that are compared, and how each is started."""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from bench.load import JPEG, Prepared, Target
from bench.peers.environments import python_with
from testing.server import ROOT, Server, free_port, metric_sum, running, serving

READY_WITHIN_S = 180
_APPS = Path(__file__).parent / "apps"
_REQUIREMENTS = ROOT / "requirements" / "peers"
_LOADS = ("tiny", "mnet", "big", "policy")
_V2_PATH = "/v2/models/peer/infer"


@dataclass(frozen=True)
class Setting:
    """One configuration: `title` for tables, environment, tree that is served from."""

    title: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    root: Path = ROOT


_Serve = Callable[[Prepared, Setting], AbstractContextManager[Target]]


@dataclass(frozen=True)
class SetUp:
    """A server; all `settings` are tried in the first round, then the best one.

    `by_choice`: measured only if it is named. `missing` returns what is not installed.
    """

    name: str
    title: str
    loads: tuple[str, ...]
    serve: _Serve
    settings: tuple[Setting, ...] = (Setting(),)
    by_choice: bool = False
    missing: Callable[[], str | None] = lambda: None


def basket(*args: str, **settings: str) -> _Serve:
    """Return a function that serves Basket with these arguments and settings."""

    @contextlib.contextmanager
    def serve(prepared: Prepared, setting: Setting) -> Iterator[Target]:
        with serving(
            *args,
            root=setting.root,
            own_session=True,
            ready=False,
            model_dir=str(prepared.models),
            **settings,
        ) as server:
            target = Target(server.port, prepared, batches=partial(_batches, server))
            server.wait_until(target.answers, READY_WITHIN_S)
            yield target

    return serve


def _batches(server: Server) -> tuple[float, float]:
    return (
        metric_sum(server, "basket_batch_rows_sum"),
        metric_sum(server, "basket_batch_rows_count"),
    )


@dataclass(frozen=True)
class Peer:
    """Another model server, installed from pinned requirements.

    `command` gets the path of its Python and the port. `package` is its name on PyPI.
    `alone_on`: the Python that it needs instead of Basket's.
    """

    name: str
    command: Callable[[Path, int], Iterable[str | Path]]
    package: str = ""
    alone_on: Path | None = None

    @property
    def requirements(self) -> Path:
        """The file with its pinned versions."""
        return _REQUIREMENTS / f"{self.name}.txt"

    def version(self) -> str:
        """Return the pinned version."""
        package = re.escape(self.package or self.name)
        pins = self.requirements.read_text()
        (found,) = re.findall(rf"^{package}==(\S+)", pins, re.M)
        return str(found)

    def install(self) -> Path:
        """Return the Python of its environment, which is made at the first call.

        Raises:
            NotInstalled: it cannot be made.
        """
        return python_with(self.name, self.requirements, self.alone_on)

    @contextlib.contextmanager
    def serve(self, prepared: Prepared, setting: Setting) -> Iterator[Target]:
        """Serve a load's model, and yield when it answers.

        Raises:
            NotInstalled: it cannot be installed.
            AssertionError: it ended, or did not answer in time.
        """
        python, port = self.install(), free_port()
        environ = {
            "MODEL": str(prepared.file),
            "PORT": str(port),
            "TAKES_PICTURES": "1" if prepared.content_type == JPEG else "",
            "PYTHONPATH": str(_APPS),
            # No usage reports to the vendors.
            "BENTOML_DO_NOT_TRACK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            **setting.environ,
        }
        command = list(map(str, self.command(python, port)))
        with tempfile.TemporaryDirectory() as folder:
            target = Target(port, prepared)
            if self.name == "pytriton":
                target = Target(port, _in_v2(prepared, Path(folder)), _V2_PATH)
            with running(
                *(command, port),
                ready=False,
                check_exit=False,
                own_session=True,
                root=_APPS,
                environ=environ,
            ) as server:
                server.wait_until(target.answers, READY_WITHIN_S)
                yield target


def _in_v2(prepared: Prepared, folder: Path) -> Prepared:
    """Return the same requests in the Open Inference Protocol, as Triton needs it."""
    bodies = tuple(folder / body.name for body in prepared.bodies)
    for old, new in zip(prepared.bodies, bodies, strict=True):
        (row,) = json.loads(old.read_text())["instances"]
        rows = {"name": "rows", "shape": [1, len(row)], "datatype": "FP32", "data": row}
        new.write_text(json.dumps({"inputs": [rows]}))
    return replace(prepared, bodies=bodies)


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "service-streamer",
            lambda python, port: [
                *(python.parent / "gunicorn", f"--bind=127.0.0.1:{port}"),
                *("--threads=64", "--config=/dev/null", "--timeout=120"),
                *("--keep-alive=75", "service_streamer_app:app"),
            ],
        ),
        Peer(
            "mosec",
            lambda python, port: [
                *(python, "mosec_app.py", "--address=127.0.0.1", f"--port={port}"),
                *("--timeout=60000", "--log-level=error"),
            ],
        ),
        Peer("litserve", lambda python, _: [python, "litserve_app.py"]),
        Peer(
            "bentoml",
            lambda python, port: [
                *(python.parent / "bentoml", "serve", "bentoml_app:Peer"),
                *("--host=127.0.0.1", f"--port={port}"),
            ],
        ),
        Peer("ray-serve", lambda python, _: [python, "ray_serve_app.py"], "ray"),
        Peer(
            "pytriton",
            lambda python, _: [
                *(python, "pytriton_app.py", str(free_port()), str(free_port()))
            ],
            "nvidia-pytriton",
            # Triton loads the library of Debian's own Python.
            Path("/usr/bin/python3.11"),
        ),
    )
}


def _waits(*waits_ms: int, **environ: str) -> tuple[Setting, ...]:
    words = [name.replace("_", " ").lower() for name in environ]
    return tuple(
        Setting(
            ", ".join([f"waits {wait_ms} ms", *words]),
            {"WAIT_MS": str(wait_ms), **environ},
        )
        for wait_ms in waits_ms
    )


def _peer(
    name: str,
    title: str,
    loads: tuple[str, ...] = _LOADS,
    settings: tuple[Setting, ...] = (Setting(),),
    *,
    by_choice: bool = False,
) -> SetUp:
    return SetUp(name, title, loads, PEERS[name].serve, settings, by_choice)


def _missing_openvino() -> str | None:
    return None if find_spec("openvino") else "openvino is not installed in .venv"


SET_UPS = {
    each.name: each
    for each in (
        SetUp(
            *("gunicorn", "Basket, Gunicorn", (*_LOADS, "growth")),
            basket("--threads=64"),
        ),
        SetUp(
            *("openvino", "Basket, OpenVINO", ("mnet",)),
            basket("--threads=64", engine="openvino"),
            missing=_missing_openvino,
        ),
        SetUp(
            *("shared", "Basket, shared model, 2 workers", ("tiny",)),
            basket("--workers=2", "--threads=32", model_process="shared"),
        ),
        _peer("service-streamer", "service-streamer", settings=_waits(10, 100)),
        _peer("mosec", "mosec", settings=_waits(10, 5, 1)),
        _peer("litserve", "LitServe", settings=_waits(10, 1, FAST_QUEUE="1")),
        _peer("bentoml", "BentoML", ("tiny", "big"), by_choice=True),
        _peer("ray-serve", "Ray Serve", settings=_waits(10, 1), by_choice=True),
        _peer(
            *("pytriton", "NVIDIA pytriton", ("tiny", "big"), _waits(10, 1)),
            by_choice=True,
        ),
    )
}
# The same, served from the tree of another commit.
BEFORE = {
    each.name: replace(each, name=f"{each.name}-before", title=f"{each.title}, before")
    for each in (SET_UPS["gunicorn"], SET_UPS["shared"])
}
TITLES = {each.name: each.title for each in (*SET_UPS.values(), *BEFORE.values())}


def with_before(set_ups: Iterable[SetUp], commit: str, root: Path) -> Iterator[SetUp]:
    """Yield each set-up, and behind those in BEFORE the same served from `root`."""
    for each in set_ups:
        yield each
        if each.name in BEFORE:
            yield replace(BEFORE[each.name], settings=(Setting(commit, root=root),))
