"""Basket that crashes while it loads version 2 of a simulated model.

Run `gunicorn tests.support.deadly:app`.
"""

import importlib
import os
import signal
from pathlib import Path
from typing import Any

from app.engines import simulated

_open_engine = simulated.open_engine


def _crash_on_version_2(file: Path, *args: Any) -> Any:
    if file.parent.name == "2":
        # As the kernel does when memory runs out.
        os.kill(os.getpid(), signal.SIGKILL)
    return _open_engine(file, *args)


simulated.open_engine = _crash_on_version_2
app = importlib.import_module("wsgi").app
