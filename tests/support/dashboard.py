"""Starts Locust's dashboard on a free port."""

import contextlib
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from testing.server import ROOT, free_port, wait_until

LOCUST = str(Path(sys.executable).parent / "locust")


class Dashboard:
    """A running dashboard."""

    def __init__(self, url: str) -> None:
        self.url = url

    def request(self, path: str, **form: str) -> str:
        """GET a path, or POST a form to it; return the body."""
        data = urllib.parse.urlencode(form).encode() if form else None
        with urllib.request.urlopen(self.url + path, data, timeout=30) as response:
            return response.read().decode()

    def is_up(self) -> bool:
        try:
            return bool(self.request("/"))
        except OSError:
            return False


@contextlib.contextmanager
def dashboard(host: str) -> Iterator[Dashboard]:
    """Run `locust --host=host` until the end of the block."""
    port = free_port()
    command = [LOCUST, f"--host={host}", "--web-host=127.0.0.1", f"--web-port={port}"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        started = Dashboard(f"http://127.0.0.1:{port}")
        wait_until(started.is_up, 50)
        yield started
    finally:
        process.kill()
        process.wait()
