"""Basket in which a simulated model is loaded only while a file is there.

`gunicorn tests.support.held:app`; the file is named by HELD_UNTIL.
"""

import importlib
import os
import time
from pathlib import Path
from typing import Any

from app.engines import simulated

_open_engine = simulated.open_engine


def _held(*args: Any) -> Any:
    while not Path(os.environ["HELD_UNTIL"]).exists():
        time.sleep(0.01)
    return _open_engine(*args)


simulated.open_engine = _held
app = importlib.import_module("wsgi").app
