"""The peers: what each is installed from, and how its process is started."""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from bench import processes
from bench.environments import python_with
from bench.peers.loads import JPEG, Prepared
from bench.peers.running import Running
from testing.server import free_port

_APPS = Path(__file__).parent / "apps"
_REQUIREMENTS = Path(__file__).parent / "requirements"
# Where the package has another name than the peer.
_PACKAGES = {"ray-serve": "ray", "pytriton": "nvidia-pytriton"}
# Debian's own Python, whose library Triton loads.
_ALONE_ON = {"pytriton": Path("/usr/bin/python3.11")}
_V2_PATH = "/v2/models/peer/infer"
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
    requirements = _REQUIREMENTS / f"{name}.txt"
    return python_with(name, requirements, _ALONE_ON.get(name))


@contextlib.contextmanager
def serve(
    name: str, prepared: Prepared, environ: Mapping[str, str]
) -> Iterator[Running]:
    """Run a peer with a load's model, until it answers.

    Raises:
        NotInstalled: it can't be installed.
        DidNotStart: it never answered.
    """
    python, port = install(name), free_port()
    takes_pictures = prepared.load.content_type == JPEG
    environ = {
        "MODEL": str(prepared.file),
        "PORT": str(port),
        "TAKES_PICTURES": "1" if takes_pictures else "",
        "PYTHONPATH": str(_APPS),
        # What it serves is nobody's business.
        "BENTOML_DO_NOT_TRACK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        **environ,
    }
    command = _COMMANDS[name](python, port)
    with tempfile.TemporaryDirectory() as folder:
        running = Running(port, prepared)
        if name == "pytriton":
            running = Running(port, _in_v2(prepared, Path(folder)), _V2_PATH)
        with processes.running(command, environ, _APPS, running.answers):
            yield running


def _in_v2(prepared: Prepared, folder: Path) -> Prepared:
    """The same requests in the Open Inference Protocol, the only one of Triton's."""
    bodies = tuple(folder / body.name for body in prepared.bodies)
    for old, new in zip(prepared.bodies, bodies, strict=True):
        (row,) = json.loads(old.read_text())["instances"]
        rows = {"name": "rows", "shape": [1, len(row)], "datatype": "FP32", "data": row}
        new.write_text(json.dumps({"inputs": [rows]}))
    return replace(prepared, bodies=bodies)


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
    "pytriton": lambda python, _: [
        *(python, "pytriton_app.py", str(free_port()), str(free_port())),
    ],
    "ray-serve": lambda python, _: [python, "ray_serve_app.py"],
}
