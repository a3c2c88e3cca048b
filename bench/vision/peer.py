"""service-streamer as its users run it, in an environment of its own.

Its own packages (Flask below 3) come first there; TensorFlow, Keras, NumPy and Pillow
are those of Basket's environment, so that both run the same model on the same engine.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench import processes
from bench.environments import python_with
from testing.server import free_port

_REQUIREMENTS = Path(__file__).parents[1] / "peers/requirements/service-streamer.txt"
_APP = Path(__file__).with_name("service_streamer_app.py")


def install() -> Path:
    """The folder of the environment's programs; made on the first call."""
    return python_with("service-streamer", _REQUIREMENTS).parent


@contextlib.contextmanager
def service_streamer(server: str, model: Path) -> Iterator[tuple[str, int]]:
    """Serve a .keras file; the URL to post to, and the process.

    `server` is "gevent", which its own example uses, or "threads": Gunicorn with 128.
    """
    port = free_port()
    programs = install()
    command: list[str | Path] = [programs / "python", _APP, str(port)]
    if server == "threads":
        command = [
            *(programs / "gunicorn", "--chdir", _APP.parent),
            f"--bind=127.0.0.1:{port}",
            *("--config=/dev/null", "--threads=128", "--timeout=120"),
            f"{_APP.stem}:app",
        ]
    environ = {"MODEL": str(model), "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ""}
    with processes.running(
        command, environ, _APP.parent, lambda: processes.answers(port, "/ready")
    ) as pid:
        yield f"http://127.0.0.1:{port}/stream_predict", pid
