"""service-streamer as its users run it, in an environment of its own.

Its own packages (Flask below 3) come first there; TensorFlow, Keras, NumPy and Pillow
are those of Basket's environment, so that both run the same model on the same engine.
"""

import contextlib
import http.client
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.environments import python_with
from tests.support.server import free_port, wait_until

_PACKAGES = ("service-streamer==0.1.2", "flask<3", "werkzeug<3", "gevent", "gunicorn")
_APP = Path(__file__).with_name("service_streamer_app.py")
_READY_WITHIN_S = 120


def install() -> Path:
    """The folder of the environment's programs; made on the first call."""
    return python_with("service-streamer", _PACKAGES).parent


@contextlib.contextmanager
def service_streamer(server: str, model: Path) -> Iterator[tuple[str, int]]:
    """Serve a .keras file; the URL to post to, and the process.

    `server` is "gevent", which its own example uses, or "threads": Gunicorn with 128.
    """
    port = free_port()
    programs = install()
    command: list[object] = [programs / "python", _APP, str(port)]
    if server == "threads":
        command = [
            *(programs / "gunicorn", "--chdir", _APP.parent),
            f"--bind=127.0.0.1:{port}",
            *("--config=/dev/null", "--threads=128", "--timeout=120"),
            f"{_APP.stem}:app",
        ]
    environ = {**os.environ, "MODEL": str(model), "TF_CPP_MIN_LOG_LEVEL": "3"}
    environ["PYTHONPATH"] = ""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603
            [str(part) for part in command],
            cwd=_APP.parent,
            env=environ,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: _listens(port, process), _READY_WITHIN_S)
            yield f"http://127.0.0.1:{port}/stream_predict", process.pid
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listens(port: int, process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is not None:
        raise RuntimeError("service-streamer ended by itself")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
