"""Frameworks behind one interface: a version in, an Engine out.

The file of a version selects the engine; for Keras files, basket.toml's `engine` does,
or else BASKET_ENGINE. A framework is imported only when a model needs it, in the
process that runs the model.
"""

import logging
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from app.engines.base import Engine
from app.engines.constants import with_constants
from app.engines.keras.own_code import offered
from app.engines.layout import Layout
from app.engines.loading import report_unreadable
from app.engines.python.engine import PythonEngine
from app.engines.python.service import Service, find_service
from app.errors import ModelLoadError
from app.settings import Settings
from app.settings.checks import install
from app.settings.model_files import (
    MODEL_FILES,
    MODEL_SUFFIXES,
    SERVICE_FILE,
    lone_model_file,
)

_log = logging.getLogger(__name__)


def open_engine(version: Path, settings: Settings) -> Engine:
    """Open a version: its folder, or a file of any name that alone is a model.

    Raises:
        NotYetLoadable: the system does not let the folder or the file be read.
        ModelLoadError: no file that an engine knows, or its engine can't read it.
    """
    # Keras reads this when it is first imported, which TensorFlow does for SavedModels,
    # and service.py may do.
    os.environ["KERAS_BACKEND"] = settings.keras_backend
    if os.path.isfile(version):
        if settings.user_code and (version.parent / SERVICE_FILE).is_file():
            _log.warning(
                "%s beside %s is not run: set BASKET_MODEL to their folder",
                *(SERVICE_FILE, version.name),
            )
        return _opened(_opener(version, settings), settings)
    file = version / _file_in(version, settings)
    # First, as its import freezes all objects.
    opener = None if file.name == SERVICE_FILE else _opener(file, settings)
    # Then, so that Keras knows its classes.
    service = find_service(version, settings)
    with offered(service):
        engine = _opened(opener, settings) if opener else None
    if engine is None and settings.constants:
        raise ModelLoadError(
            "basket.toml: [constants] are inputs of a model file, and there is none"
        )
    if service is not None:
        return _with_service(service, engine, settings)
    if engine is None:  # service.py was removed meanwhile
        raise ModelLoadError(Layout(settings).missing_file(version))
    return engine


def _opened(opener: Callable[[], Engine], settings: Settings) -> Engine:
    engine = opener()
    try:
        return with_constants(engine, settings.constants)
    except BaseException:
        engine.close()
        raise


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
        ModelLoadError: the engine's framework is not installed.
    """
    kind = f"model{file.suffix}" if file.suffix in MODEL_SUFFIXES else file.name
    with report_unreadable(file.name):
        file.open("rb").close()
    name = _module(kind, settings)
    try:
        module = import_module(f"app.engines.{name}")
    except ModuleNotFoundError as error:
        raise ModelLoadError(
            f"{file.name} needs {error.name}, which is not installed: "
            f"{install(name.partition('.')[0])}"
        ) from error
    return partial(module.open_engine, file, settings)


def _module(kind: str, settings: Settings) -> str:
    """Return the module of app.engines that opens a file of MODEL_FILES.

    Raises:
        ModelLoadError: it needs Keras on another backend than the server's.
    """
    name = MODEL_FILES[kind].format(engine=settings.engine)
    backend = settings.keras_backend
    if name == "jax.keras_file" and backend != "jax":
        raise ModelLoadError(
            'basket.toml: engine = "jax" needs Keras on JAX, and Keras has one backend '
            "in a process, here TensorFlow: start the server with BASKET_ENGINE=jax, "
            'and write engine = "tensorflow" for its other models'
        )
    if name == "tensorflow.keras_file" and backend == "jax":
        return "tensorflow.exported_keras"
    return name


def _file_in(folder: Path, settings: Settings) -> str:
    with report_unreadable(f"version {folder.name}"):
        known = (*MODEL_FILES, SERVICE_FILE)
        # Raises for a folder that can't be read.
        name = next((each for each in known if (folder / each).is_file()), None)
        if name == SERVICE_FILE and settings.model is not None:
            # As without service.py, a .keras or .h5 file may have any name; files of
            # other kinds may be what the code opens.
            try:
                return lone_model_file(folder, only_keras=True) or name
            except ValueError as error:
                raise ModelLoadError(f"version {folder.name}: {error}") from error
        if name is None:
            raise ModelLoadError(Layout(settings).missing_file(folder))
    return name
