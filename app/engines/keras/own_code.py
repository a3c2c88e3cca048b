"""Classes and functions of a service.py, for models whose files name them."""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.engines.python.service import Service


@contextmanager
def offered(service: Service | None) -> Iterator[None]:
    """Let Keras find what service.py defines or imports, by its name, in this thread.

    Keras is not imported for that.
    """
    keras = sys.modules.get("keras")
    if service is None or keras is None:
        yield
        return
    names = {
        name: value
        for name, value in service.namespace.items()
        # Keras's activations are strings in files, which it would replace.
        if _is_own(value) and not hasattr(keras.activations, name)
    }
    with keras.saving.custom_object_scope(names):
        yield


def _is_own(value: Any) -> bool:
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return False
    # It is None for a function that exec() defined without a module.
    return str(value.__module__).partition(".")[0] not in ("keras", "tensorflow")
