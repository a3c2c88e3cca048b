"""A real Gunicorn with a simulated model that echoes rows."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testing.server import Server, serving, simulated_models

GOOD = "wsgi:app"
_WIDTH = 4


def device(base_ms: float, per_row_ms: float, **more: Any) -> dict[str, Any]:
    """Return a simulated.json that echoes rows of four values."""
    shape = {"input_shape": [_WIDTH], "outputs": _WIDTH}
    return {"base_ms": base_ms, "per_row_ms": per_row_ms, **shape, **more}


@contextlib.contextmanager
def simulated(
    simulation: dict[str, Any], *args: str, app: str = GOOD, **settings: str
) -> Iterator[Server]:
    """Serve a simulated model under the name m."""
    with tempfile.TemporaryDirectory() as folder:
        settings["model_dir"] = simulated_models(Path(folder), m=simulation)
        with serving(*args, app=app, own_session=True, **settings) as server:
            yield server
