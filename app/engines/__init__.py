"""Frameworks behind one interface: a version's folder in, an Engine out.

The file in the folder decides the engine; Keras files run on the one that the settings
name. An engine's module, and with it the framework, is imported only when a model wants
it, in the process that runs it.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from app.engines.base import Engine
from app.errors import ModelLoadError
from app.settings import Settings

_MODULE_BY_FILE = {
    "model.keras": "keras_{engine}",
    "model.h5": "keras_{engine}",
    "saved_model.pb": "saved_model",
    "simulated.json": "simulated",
    "tensorflow_serving.json": "tensorflow_serving",
}


class _EngineModule(Protocol):
    def open_engine(self, file: Path, settings: Settings) -> Engine: ...


def open_engine(folder: Path, settings: Settings) -> Engine:
    """Open the model in a version's folder.

    Raises:
        ModelLoadError: no file that an engine knows, or its engine can't read it.
    """
    for name, pattern in _MODULE_BY_FILE.items():
        if (folder / name).is_file():
            # Whoever imports Keras first decides this, and TensorFlow imports it.
            backend = "jax" if settings.engine == "jax" else "tensorflow"
            os.environ["KERAS_BACKEND"] = backend
            module = f"app.engines.{pattern.format(engine=settings.engine)}"
            engines = cast(_EngineModule, import_module(module))
            return engines.open_engine(folder / name, settings)
    known = ", ".join(_MODULE_BY_FILE)
    raise ModelLoadError(f"version {folder.name} holds none of: {known}")
