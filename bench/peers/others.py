"""The peers: what each is installed from, and how its process is started."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import processes
from bench.environments import python_with
from bench.peers.loads import JPEG, Prepared
from bench.peers.running import PATH, Running
from tests.support.server import free_port

_APPS = Path(__file__).parent / "apps"
_REQUIREMENTS = Path(__file__).parent / "requirements"
# Where the package has another name than the peer.
_PACKAGES = {"ray-serve": "ray"}
_Command = list[str | Path]


def is_peer(name: str) -> bool:
    """Whether it is one of these."""
    return name in _COMMANDS


def version(name: str) -> str:
    """The version that is pinned."""
    pins = (_REQUIREMENTS / f"{name}.txt").read_text()
    package = _PACKAGES.get(name, name)
    (found,) = re.findall(rf"^{re.escape(package)}==(\S+)", pins, re.M)
    return str(found)


def install(name: str) -> Path:
    """The Python of a peer's own environment; made on the first call.

    Raises:
        NotInstalled: it can't be.
    """
    return python_with(name, _REQUIREMENTS / f"{name}.txt")


@contextlib.contextmanager
def serve(
    name: str, prepared: Prepared, environ: Mapping[str, str]
) -> Iterator[Running]:
    """Run a peer with a load's model, until it answers.

    Raises:
        NotInstalled: it can't be installed.
        DidNotStart: it never answered.
    """
    port = free_port()
    takes_pictures = prepared.load.content_type == JPEG
    environ = {
        "MODEL": str(prepared.file),
        "PORT": str(port),
        "TAKES_PICTURES": "1" if takes_pictures else "",
        "PYTHONPATH": str(_APPS),
        # What it serves is nobody's business.
        "BENTOML_DO_NOT_TRACK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{install(name).parent}:{os.environ['PATH']}",
        **environ,
    }
    body = prepared.bodies[0].read_bytes()
    kind = prepared.load.content_type

    def is_ready() -> bool:
        return processes.answers(port, PATH, body, kind)

    command = _COMMANDS[name](install(name), port)
    with processes.running(command, environ, _APPS, is_ready):
        yield Running(port)


def _streamer(python: Path, port: int) -> _Command:
    return [
        *(python.parent / "gunicorn", f"--bind=127.0.0.1:{port}", "--threads=64"),
        *("--config=/dev/null", "--timeout=120", "--keep-alive=75"),
        "service_streamer_app:app",
    ]


def _mosec(python: Path, port: int) -> _Command:
    return [
        *(python, "mosec_app.py", "--address=127.0.0.1", f"--port={port}"),
        *("--timeout=60000", "--log-level=error"),
    ]


_COMMANDS: dict[str, Callable[[Path, int], _Command]] = {
    "service-streamer": _streamer,
    "mosec": _mosec,
    "litserve": lambda python, _: [python, "litserve_app.py"],
    "bentoml": lambda python, port: [
        *(python.parent / "bentoml", "serve", "bentoml_app:Peer"),
        *("--host=127.0.0.1", f"--port={port}"),
    ],
    "ray-serve": lambda python, _: [python, "ray_serve_app.py"],
}
