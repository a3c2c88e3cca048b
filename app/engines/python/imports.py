"""Imports a version's service.py under a name of its own.

Versions are loaded and unloaded while the process runs, and may have helper modules of
the same names. So a version's modules are in sys.modules only while it is imported or
loads: the functions of service.py keep what they have imported.
"""

import importlib.util
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from app.engines.keras import keras_private
from app.engines.loading import without_folders, without_machine
from app.errors import ModelLoadError

# One version at a time: sys.path and sys.modules belong to the process.
_importing = threading.Lock()
_numbers = itertools.count()


class ServiceImports:
    """The modules of one version's folder."""

    def __init__(self, file: Path) -> None:
        """Store the path of service.py, and choose the module's name."""
        self._file = file
        self.name = f"basket_service_{next(_numbers)}"
        self._helpers: dict[str, ModuleType] = {}
        # Undoes `visible` once; empty while its block does not run.
        self._undo: deque[Callable[[], None]] = deque()
        # What the modules have registered with Keras.
        self.registrations: list[Any] = []

    def module(self) -> ModuleType:
        """Import service.py.

        It is a package too, so that `from . import helper` works at any time.

        Raises:
            ModelLoadError: it raises, or calls sys.exit.
        """
        folder = str(self._file.parent)
        spec = importlib.util.spec_from_file_location(
            self.name, self._file, submodule_search_locations=[folder]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            with self.visible():
                sys.modules[self.name] = module
                spec.loader.exec_module(module)
        except BaseException as error:  # sys.exit, too
            forget(self.name, self.registrations)
            reason = described(error, self._file)
            raise ModelLoadError(
                f"{self._file.name} can't be imported: {reason}"
            ) from error
        return module

    @contextmanager
    def visible(self) -> Iterator[None]:
        """Let the block import helper modules beside service.py by their names.

        A pickle, too, finds its classes in them.
        """
        own = _module_names(self._file.parent)
        _importing.acquire()
        hidden = _take(own)
        known = {*keras_private.registered()}
        sys.modules.update(self._helpers)
        # A new list, since imports in other threads may be passing through this one.
        sys.path = [str(self._file.parent), *sys.path]
        writes_bytecode = sys.dont_write_bytecode
        # The folder of a model stays as it is.
        sys.dont_write_bytecode = True
        importlib.invalidate_caches()
        self._undo.append(partial(self._hide, own, hidden, known, writes_bytecode))
        try:
            yield
        finally:
            self.hide()

    def hide(self) -> None:
        """End `visible`, from any thread; its block may never return."""
        with suppress(IndexError):
            self._undo.pop()()

    def _hide(
        self,
        own: set[str],
        hidden: dict[str, ModuleType],
        known: set[Any],
        writes_bytecode: bool,
    ) -> None:
        try:
            sys.dont_write_bytecode = writes_bytecode
            path = [*sys.path]
            path.remove(str(self._file.parent))
            sys.path = path
            self._helpers = _take(own)
            sys.modules.update(hidden)
            self.registrations += [
                each
                for each in keras_private.registered()
                if each not in known
                and each.__module__.partition(".")[0] in {self.name, *own}
            ]
        finally:
            _importing.release()


def missing_import(error: BaseException, file: Path) -> str:
    """Return what to do about an import that fails where a request is answered.

    "" if the error is another one, or the module is not beside `file`.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    name = error.name.partition(".")[0]
    if name not in _module_names(file.parent):
        return ""
    return (
        f": a function imports {name}, which lies beside {file.name}: import it at the "
        "top of the file instead, as such modules are found only while the version "
        "is loaded"
    )


def forget(name: str, registrations: Sequence[Any]) -> None:
    """Remove a service.py, and modules inside its package, from sys.modules.

    Also end what it has registered with Keras.
    """
    _take({name})
    if registrations:
        keras_private.unregister(registrations)


def described(error: BaseException, file: Path) -> str:
    """Return an error on one line, with the line of `file` where it was raised.

    Nothing of the machine is in it.
    """
    lines = str(error).strip().splitlines()
    reason = (lines or [""])[0]
    for folder in (file.parent.resolve(), file.parent):
        reason = reason.replace(f"{folder}/", "")
    reason = without_folders(without_machine(reason))[:300]
    text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    number = None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == str(file):
            number = step.tb_lineno
        step = step.tb_next
    return text if number is None else f"{text} (line {number})"


def _module_names(folder: Path) -> set[str]:
    """Return the names under which modules of a folder can be imported."""
    return {
        each.stem
        for each in folder.iterdir()
        if each.suffix == ".py"
        or (each.name.isidentifier() and any(each.rglob("*.py")))
    }


def _take(names: set[str]) -> dict[str, ModuleType]:
    """Remove modules of these names, and those inside them, and return them."""
    # A copy: other threads may import meanwhile.
    found = [name for name in [*sys.modules] if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in found}
