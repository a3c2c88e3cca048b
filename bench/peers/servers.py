"""The servers that are compared, and how each is started."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from bench.load import Target
from bench.peers.environments import python_of
from bench.prepared import JPEG, Prepared
from testing.server import ROOT, Server, free_port, running, serving

BASKET = "Basket, Gunicorn"
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

    title: str
    loads: tuple[str, ...]
    serve: _Serve
    settings: tuple[Setting, ...] = (Setting(),)


@contextlib.contextmanager
def _answering(
    server: AbstractContextManager[Server], prepared: Prepared, *, is_basket: bool
) -> Iterator[Target]:
    """Wait until a server answers; AssertionError: it ended, or took too long."""
    with server as running_server:
        target = Target(running_server, prepared, is_basket)
        running_server.wait_until(target.answers, _READY_WITHIN_S)
        yield target


def basket(*args: str, **settings: str) -> _Serve:
    """Return a function that serves Basket with these arguments and settings.

    It raises OSError if the engine is not installed.
    """

    def serve(prepared: Prepared, setting: Setting) -> AbstractContextManager[Target]:
        engine = settings.get("engine", "tensorflow")
        if not find_spec(engine):
            raise OSError(f"{engine} is not installed in .venv")
        options = {"root": setting.root, "own_session": True, "ready": False}
        model_dir = str(prepared.models)
        server = serving(*args, **options, model_dir=model_dir, **settings)
        return _answering(server, prepared, is_basket=True)

    return serve


def _peer(name: str) -> _Serve:
    """Return a function that serves a peer, or raises as `python_of` does."""

    def serve(prepared: Prepared, setting: Setting) -> AbstractContextManager[Target]:
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
        options = {"ready": False, "check_exit": False, "own_session": True}
        server = running(command, port, root=_APPS, environ=environ, **options)
        return _answering(server, prepared, is_basket=False)

    return serve


def _waits(*waits_ms: int, **environ: str) -> tuple[Setting, ...]:
    """Return a setting for each time that a batch may wait."""
    words = "".join(f", {name.replace('_', ' ').lower()}" for name in environ)
    return tuple(
        Setting(f"waits {wait} ms{words}", {"WAIT_MS": str(wait), **environ})
        for wait in waits_ms
    )


SET_UPS = {
    # More connections than the load *growth* opens: at the limit they are closed.
    "gunicorn": SetUp(
        *(BASKET, (*_LOADS, "growth")),
        basket("--threads=64", "--worker-connections=4096"),
    ),
    "openvino": SetUp(
        "Basket, OpenVINO", ("mnet",), basket("--threads=64", engine="openvino")
    ),
    "shared": SetUp(
        *("Basket, shared model, 2 workers", ("tiny",)),
        basket("--workers=2", "--threads=32", model_process="shared"),
    ),
    "service-streamer": SetUp(
        "service-streamer", _LOADS, _peer("service-streamer"), _waits(10, 100)
    ),
    "mosec": SetUp("mosec", _LOADS, _peer("mosec"), _waits(10, 5, 1)),
    "litserve": SetUp(
        "LitServe", _LOADS, _peer("litserve"), _waits(10, 1, FAST_QUEUE="1")
    ),
}


def with_before(set_ups: Iterable[SetUp], commit: str, root: Path) -> Iterator[SetUp]:
    """Yield each set-up, and behind Basket's the same served from the tree `root`."""
    for each in set_ups:
        yield each
        if each in (SET_UPS["gunicorn"], SET_UPS["shared"]):
            setting = Setting(commit, root=root)
            yield replace(each, title=f"{each.title}, before", settings=(setting,))
