"""Basket whose simulated models run no further batch once a row has a negative value.

Rows may have any width. Run `gunicorn tests.support.jammed:app`.
"""

import importlib
import threading
from typing import Any

from app.engines import simulated
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from tests.support.engines import Echo


class _Jamming(Echo):
    """Returns the first value of each row, or nothing any more."""

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        if batch["input"].min() < 0:
            threading.Event().wait()
        return super().run(batch, signature_name)


def _open(*_: Any) -> _Jamming:
    return _Jamming()


simulated.open_engine = _open
app = importlib.import_module("wsgi").app
