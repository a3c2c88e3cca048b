"""The peers: how each is installed and started."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.load import Target
from bench.peers.environments import python_with
from bench.prepared import JPEG, Prepared
from testing.server import ROOT, free_port, running

READY_WITHIN_S = 180
_APPS = Path(__file__).parent / "apps"
_REQUIREMENTS = ROOT / "requirements" / "peers"


@dataclass(frozen=True)
class Setting:
    """One configuration: `title` for tables, environment, tree that is served from."""

    title: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    root: Path = ROOT


@dataclass(frozen=True)
class Peer:
    """Another model server, installed from pinned requirements.

    `command` gets the path of its Python and the port.
    """

    name: str
    command: Callable[[Path, int], Iterable[str | Path]]

    @property
    def requirements(self) -> Path:
        """The file with its pinned versions."""
        return _REQUIREMENTS / f"{self.name}.txt"

    def version(self) -> str:
        """Return the pinned version."""
        package = re.escape(self.name)
        pins = self.requirements.read_text()
        (found,) = re.findall(rf"^{package}==(\S+)", pins, re.M)
        return str(found)

    def install(self) -> Path:
        """Return the Python of its environment, which is made at the first call.

        Raises:
            NotInstalled: it cannot be made.
        """
        return python_with(self.name, self.requirements)

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
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            **setting.environ,
        }
        command = list(map(str, self.command(python, port)))
        target = Target(port, prepared)
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
    )
}
