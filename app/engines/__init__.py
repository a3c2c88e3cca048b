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
from app.engines.reading import readable
from app.errors import ModelLoadError
from app.settings import Settings

# What a version's folder may hold, and the module that opens it.
MODEL_FILES = {
    "model.keras": "{engine}.keras_file",
    "model.h5": "{engine}.keras_file",
    "saved_model.pb": "tensorflow.saved_model",
    "simulated.json": "simulated",
    "tensorflow_serving.json": "tensorflow_serving.engine",
}
_MOST_SHOWN = 5


class _EngineModule(Protocol):
    def open_engine(self, file: Path, settings: Settings) -> Engine: ...


def open_engine(folder: Path, settings: Settings) -> Engine:
    """Open the model in a version's folder.

    Raises:
        ModelLoadError: no file that an engine knows, or its engine can't read it.
    """
    with readable(f"version {folder.name}"):
        held = sorted(each.name for each in folder.iterdir())
        name = next((each for each in MODEL_FILES if (folder / each).is_file()), None)
    if name is None:
        known = ", ".join(MODEL_FILES)
        raise ModelLoadError(
            f"version {folder.name} holds {_shown(held)}; expected one of: {known}"
        )
    with readable(name):
        (folder / name).open("rb").close()
    # Whoever imports Keras first decides this, and TensorFlow imports it.
    os.environ["KERAS_BACKEND"] = "jax" if settings.engine == "jax" else "tensorflow"
    module = f"app.engines.{MODEL_FILES[name].format(engine=settings.engine)}"
    engines = cast(_EngineModule, import_module(module))
    return engines.open_engine(folder / name, settings)


def _shown(names: list[str]) -> str:
    more = ", ..." if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more or "nothing"
