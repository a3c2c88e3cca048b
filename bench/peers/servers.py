"""The servers that are compared, and how each is started."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from bench.load import Target, batches_of
from bench.peers.environments import python_of
from bench.prepared import JPEG, Prepared
from testing.server import ROOT, free_port, running, serving

_READY_WITHIN_S = 180
_APPS = Path(__file__).parent / "apps"
_LOADS = ("tiny", "mnet", "big", "policy")
# The arguments of each peer, behind the folder of its programs.
_COMMANDS = {
    "service-streamer": (
        *("{bin}/gunicorn", "--bind=127.0.0.1:{port}", "--threads=64"),
        *("--config=/dev/null", "--timeout=120", "--keep-alive=75"),
        "service_streamer_app:app",
    ),
    "mosec": (
        *("{bin}/python", "mosec_app.py", "--address=127.0.0.1", "--port={port}"),
        *("--timeout=60000", "--log-level=error"),
    ),
    "litserve": ("{bin}/python", "litserve_app.py"),
}
PEERS = tuple(_COMMANDS)


@dataclass(frozen=True)
class Setting:
    """One configuration: `title` for tables, environment, tree that is served from."""

    title: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    root: Path = ROOT


_Serve = Callable[[Prepared, Setting], AbstractContextManager[Target]]


@dataclass(frozen=True)
class SetUp:
    """A server; all `settings` are tried in the first round, then the best one."""

    name: str
    title: str
    loads: tuple[str, ...]
    serve: _Serve
    settings: tuple[Setting, ...] = (Setting(),)


def basket(*args: str, **settings: str) -> _Serve:
    """Return a function that serves Basket with these arguments and settings.

    It raises OSError if the engine is not installed.
    """

    @contextlib.contextmanager
    def serve(prepared: Prepared, setting: Setting) -> Iterator[Target]:
        engine = settings.get("engine", "tensorflow")
        if not find_spec(engine):
            raise OSError(f"{engine} is not installed in .venv")
        with serving(
            *args,
            root=setting.root,
            own_session=True,
            ready=False,
            model_dir=str(prepared.models),
            **settings,
        ) as server:
            target = Target(server.port, prepared, lambda: batches_of(server))
            server.wait_until(target.answers, _READY_WITHIN_S)
            yield target

    return serve


def _peer(name: str) -> _Serve:
    """Return a function that serves a peer.

    It raises NotInstalled, or AssertionError if the server ended or did not answer.
    """

    @contextlib.contextmanager
    def serve(prepared: Prepared, setting: Setting) -> Iterator[Target]:
        programs, port = python_of(name).parent, free_port()
        environ = {
            "MODEL": str(prepared.file),
            "PORT": str(port),
            "TAKES_PICTURES": "1" if prepared.content_type == JPEG else "",
            "PYTHONPATH": str(_APPS),
            "PATH": f"{programs}:{os.environ['PATH']}",
            **setting.environ,
        }
        command = [word.format(bin=programs, port=port) for word in _COMMANDS[name]]
        target = Target(port, prepared)
        with running(
            *(command, port),
            ready=False,
            check_exit=False,
            own_session=True,
            root=_APPS,
            environ=environ,
        ) as server:
            server.wait_until(target.answers, _READY_WITHIN_S)
            yield target

    return serve


def _waits(*waits_ms: int, **environ: str) -> tuple[Setting, ...]:
    """Return a setting for each time that a batch may wait."""
    words = [name.replace("_", " ").lower() for name in environ]
    titles = {wait: ", ".join([f"waits {wait} ms", *words]) for wait in waits_ms}
    return tuple(
        Setting(title, {"WAIT_MS": str(wait), **environ})
        for wait, title in titles.items()
    )


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
        ),
        SetUp(
            *("shared", "Basket, shared model, 2 workers", ("tiny",)),
            basket("--workers=2", "--threads=32", model_process="shared"),
        ),
        SetUp(
            *("service-streamer", "service-streamer", _LOADS),
            *(_peer("service-streamer"), _waits(10, 100)),
        ),
        SetUp("mosec", "mosec", _LOADS, _peer("mosec"), _waits(10, 5, 1)),
        SetUp(
            *("litserve", "LitServe", _LOADS),
            *(_peer("litserve"), _waits(10, 1, FAST_QUEUE="1")),
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
