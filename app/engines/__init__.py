"""Frameworks behind one interface: a version in, an Engine out.

The file of a version selects the engine; BASKET_ENGINE selects it for Keras files. A
framework is imported only when a model needs it, in the process that runs the model.
"""

import logging
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from app.engines.base import Engine
from app.engines.keras.own_code import offered
from app.engines.layout import Layout
from app.engines.loading import report_unreadable
from app.engines.python.engine import PythonEngine
from app.engines.python.service import Service, find_service
from app.errors import ModelLoadError
from app.settings import Settings
from app.settings.model_files import (
    KERAS_SUFFIXES,
    MODEL_FILES,
    SERVICE_FILE,
    lone_keras_file,
)

_log = logging.getLogger(__name__)


def open_engine(version: Path, settings: Settings) -> Engine:
    """Open a version: its folder, or a Keras file of any name.

    Raises:
        NotYetLoadable: the system does not let the folder or the file be read.
        ModelLoadError: no file that an engine knows, or its engine can't read it.
    """
    # Keras reads this when it is first imported, which TensorFlow does for SavedModels,
    # and service.py may do.
    os.environ["KERAS_BACKEND"] = "jax" if settings.engine == "jax" else "tensorflow"
    if version.suffix in KERAS_SUFFIXES and version.is_file():
        if settings.user_code and (version.parent / SERVICE_FILE).is_file():
            _log.warning(
                "%s beside %s is not run: set BASKET_MODEL to their folder",
                *(SERVICE_FILE, version.name),
            )
        return _opener(version, settings)()
    file = version / _file_in(version, settings)
    # First, as its import freezes all objects.
    opener = None if file.name == SERVICE_FILE else _opener(file, settings)
    # Then, so that Keras knows its classes.
    service = find_service(version, settings)
    with offered(service):
        engine = opener() if opener else None
    if service is not None:
        return _with_service(service, engine, settings)
    if engine is None:  # service.py was removed meanwhile
        raise ModelLoadError(Layout(settings).missing_file(version))
    return engine


def _with_service(
    service: Service, engine: Engine | None, settings: Settings
) -> Engine:
    try:
        is_packed = settings.model_process == "shared"
        python = PythonEngine(service, engine, packed=is_packed)
        python.load()
    except BaseException:
        if engine is not None:
            engine.close()
        raise
    return python


def _opener(file: Path, settings: Settings) -> Callable[[], Engine]:
    """Return what opens a file; its framework is imported.

    Raises:
        NotYetLoadable: the system does not let the file be read.
    """
    is_keras = file.suffix in KERAS_SUFFIXES
    kind = f"model{file.suffix}" if is_keras else file.name
    with report_unreadable(file.name):
        file.open("rb").close()
    name = MODEL_FILES[kind].format(engine=settings.engine)
    package = import_module(f"app.engines.{name}")
    return partial(package.open_engine, file, settings)


def _file_in(folder: Path, settings: Settings) -> str:
    with report_unreadable(f"version {folder.name}"):
        known = (*MODEL_FILES, SERVICE_FILE)
        # Raises for a folder that can't be read.
        name = next((each for each in known if (folder / each).is_file()), None)
        if name == SERVICE_FILE and settings.model is not None:
            # As without service.py, the file may have any name.
            return lone_keras_file(folder) or name
        if name is None:
            raise ModelLoadError(Layout(settings).missing_file(folder))
    return name
