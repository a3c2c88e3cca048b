"""A version's service.py: its functions, checked when it is imported."""

import copy
import inspect
import os
import stat
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from app.engines.python.bounded import bounded
from app.engines.python.imports import (
    ServiceImports,
    described,
    forget,
    missing_import,
)
from app.engines.python.threads import ServiceThreads
from app.errors import ModelLoadError
from app.settings import Settings
from app.settings.model_files import SERVICE_FILE

# The functions that service.py may have, and the number of their arguments.
_FUNCTIONS = {"load": 1, "preprocess": 1, "predict": 2, "postprocess": 1}


class Service:
    """The functions of a service.py; those that it lacks are None.

    `example` is EXAMPLE if `has_example`; `has_parts` if it has that or a function;
    `namespace` has all that it defines. The
    module, and the threads that wait for calls, go with the last reference to this
    object.
    """

    def __init__(self, folder: Path) -> None:
        """Import service.py of a folder.

        Raises:
            ModelLoadError: it can't be imported, or a function of it can't be called.
        """
        self.folder = folder
        self._file = folder / SERVICE_FILE
        self._imports = own = ServiceImports(self._file)
        try:
            module = bounded(own.module, "its import")
        finally:
            # An import that never returns must not hold those of other versions.
            own.hide()
        self._forget = weakref.finalize(self, forget, own.name, own.registrations)
        self._forget.atexit = False
        self.namespace: Mapping[str, Any] = vars(module)
        found = {name: _function(module, name) for name in _FUNCTIONS}
        self.preprocess, self.predict = found["preprocess"], found["predict"]
        self.postprocess = found["postprocess"]
        self._load = found["load"]
        self.has_example = hasattr(module, "EXAMPLE")
        # Without one it only imports, such as a package with TensorFlow operations.
        self.has_parts = self.has_example or any(found.values())
        self._example: Any = getattr(module, "EXAMPLE", None)

    @property
    def example(self) -> Any:
        """EXAMPLE, one instance, for one call: a copy where it can be copied."""
        try:
            return copy.deepcopy(self._example)
        except Exception:
            return self._example

    @property
    def has_load(self) -> bool:
        """Whether service.py loads its model itself."""
        return self._load is not None

    def load(self) -> Any:
        """Return what its function `load` returns, None without one.

        Raises:
            ModelLoadError: it raises, or calls sys.exit.
        """
        load = self._load
        if load is None:
            return None

        def call() -> Any:
            with self._imports.visible():
                return load(self.folder)

        try:
            return bounded(call, "load")
        except ModelLoadError:
            raise
        except BaseException as error:  # sys.exit, too
            raise ModelLoadError(
                f"{SERVICE_FILE}: load raised {self.described(error)}"
            ) from error
        finally:
            self._imports.hide()

    def close(self) -> None:
        """Remove the module from sys.modules, so that it can be collected."""
        self._forget()

    def failed(self, function: str, error: BaseException, place: str = "") -> str:
        """Return that a function has failed, for clients: the type of the error."""
        advice = missing_import(error, self._file)
        kind = type(error).__name__
        return f"{SERVICE_FILE}: {function} failed{place} ({kind}){advice}"

    def described(self, error: BaseException) -> str:
        """Return an error on one line, with its line in service.py."""
        return described(error, self._file)

    @cached_property
    def threads(self) -> ServiceThreads:
        """Threads for its functions before and after the model.

        They are its own, so that a function that never returns holds no others'.
        """
        return ServiceThreads()


def _function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    """Return a function of service.py, None if it lacks it.

    Raises:
        ModelLoadError: it is no function, or takes other arguments.
    """
    function = getattr(module, name, None)
    if function is None:
        return None
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ModelLoadError(f"{SERVICE_FILE}: {name} is not a plain function")
    count = _FUNCTIONS[name]
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        arguments = "1 argument" if count == 1 else f"{count} arguments"
        raise ModelLoadError(
            f"{SERVICE_FILE}: {name} is called with {arguments}, and takes "
            f"{inspect.signature(function)}"
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return function  # type: ignore[no-any-return]


def find_service(folder: Path, settings: Settings) -> Service | None:
    """Import the service.py of a version's folder, None if there is none.

    Raises:
        ModelLoadError: it is there and user code is off; others may write it; or it
            can't be imported.
    """
    if not os.path.isfile(folder / SERVICE_FILE):
        return None
    if not settings.user_code:
        raise ModelLoadError(
            f"it holds {SERVICE_FILE}, which runs only with BASKET_USER_CODE=on"
        )
    _check_writers(folder)
    return Service(folder)


def _check_writers(folder: Path) -> None:
    """Check that only the owner and the group may write a version's code.

    Raises:
        ModelLoadError: everybody may write its folder, the model's, that of all models,
            or a file beside service.py.
    """
    above = [folder, *folder.absolute().parents[:2]]
    for path in [*above, *folder.rglob("*")]:
        if not _may_anybody_write(path, folder):
            continue
        name = path.name if path in above else str(path.relative_to(folder))
        where = "the folder " if path in above else ""
        raise ModelLoadError(
            f"{SERVICE_FILE} is not run, as everybody may write {where}{name}: "
            f"chmod o-w {name}"
        )


def _may_anybody_write(path: Path, version: Path) -> bool:
    try:
        status = os.stat(path)
    except FileNotFoundError:  # an editor's lock, which is a link to nothing
        return False
    if not status.st_mode & stat.S_IWOTH:
        return False
    # In a sticky folder, such as /tmp, nobody else may replace the version.
    is_sticky = bool(status.st_mode & stat.S_ISVTX) and path != version
    return not is_sticky or os.stat(version).st_uid not in (os.geteuid(), status.st_uid)
