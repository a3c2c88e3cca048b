"""Frameworks behind one interface: a version's folder in, an Engine out.

The file in the folder selects the engine; BASKET_ENGINE selects it for Keras files. A
framework is imported only when a model needs it, in the process that runs the model.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from app.engines.base import Engine
from app.engines.loading import report_unreadable
from app.errors import ModelLoadError
from app.settings import Settings

# Files of a version's folder by preference, and the module that opens each.
MODEL_FILES = {
    "model.keras": "{engine}.keras_file",
    "model.h5": "{engine}.keras_file",
    "saved_model.pb": "tensorflow.saved_model",
    "simulated.json": "simulated",
    "tensorflow_serving.json": "tensorflow_serving.engine",
}
_MAX_SHOWN = 5


class _EngineModule(Protocol):
    def open_engine(self, file: Path, settings: Settings) -> Engine: ...


def open_engine(folder: Path, settings: Settings) -> Engine:
    """Open the model in a version's folder.

    Raises:
        NotYetLoadable: the system does not let the folder or the file be read.
        ModelLoadError: no file that an engine knows, or its engine can't read it.
    """
    with report_unreadable(f"version {folder.name}"):
        names = sorted(each.name for each in folder.iterdir())
        name = next((each for each in MODEL_FILES if (folder / each).is_file()), None)
    if name is None:
        known = ", ".join(MODEL_FILES)
        raise ModelLoadError(
            f"version {folder.name} holds {_shown(names)}; expected one of: {known}"
        )
    with report_unreadable(name):
        (folder / name).open("rb").close()
    # Keras reads this when it is first imported, which TensorFlow does for SavedModels.
    os.environ["KERAS_BACKEND"] = "jax" if settings.engine == "jax" else "tensorflow"
    module = f"app.engines.{MODEL_FILES[name].format(engine=settings.engine)}"
    engine = cast(_EngineModule, import_module(module))
    return engine.open_engine(folder / name, settings)


def _shown(names: list[str]) -> str:
    more = ", ..." if len(names) > _MAX_SHOWN else ""
    return ", ".join(names[:_MAX_SHOWN]) + more or "nothing"
