"""Basket in which to load a simulated model's version 2 ends the process.

`gunicorn tests.support.deadly:app`
"""

import importlib
import os
import signal
from pathlib import Path
from typing import Any

from app.engines import simulated

_open_engine = simulated.open_engine


def _deadly(file: Path, *args: Any) -> Any:
    if file.parent.name == "2":
        # As the system does where memory is short.
        os.kill(os.getpid(), signal.SIGKILL)
    return _open_engine(file, *args)


simulated.open_engine = _deadly
app = importlib.import_module("wsgi").app
