"""Basket that loads no simulated model before the file HELD_UNTIL exists.

Run `gunicorn tests.support.held:app`.
"""

import importlib
import os
import time
from pathlib import Path
from typing import Any

from app.engines import simulated

_open_engine = simulated.open_engine


def _open_when_released(*args: Any) -> Any:
    while not Path(os.environ["HELD_UNTIL"]).exists():
        time.sleep(0.01)
    return _open_engine(*args)


simulated.open_engine = _open_when_released
app = importlib.import_module("wsgi").app
