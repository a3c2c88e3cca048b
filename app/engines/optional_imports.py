"""Imports a framework without packages that it imports only where they are installed.

TensorFlow imports JAX and SciPy, and Keras matplotlib and scikit-learn, for
conversions, sparse rows, plots and wrappers that no server uses.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from app import memory


class _Hidden(MetaPathFinder):
    """Makes packages look not installed to imports of one thread."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._thread = threading.get_ident()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return None, so that the next finder is asked.

        Raises:
            ModuleNotFoundError: it is a hidden package.
        """
        del path, target
        if fullname in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Let imports of this thread not find these packages, if they are not imported yet.

    Other threads, such as one that imports a service.py, find them, and so does this
    one afterwards.
    """
    hidden = _Hidden(names)
    # A new list, since imports in other threads may be passing through this one.
    sys.meta_path = [hidden, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [each for each in sys.meta_path if each is not hidden]


def import_framework(name: str, *hidden: str) -> ModuleType:
    """Import and return a framework, `without` packages; it is frozen.

    TensorFlow leaves 250,000 objects and little garbage. Visiting them again and again
    took a sixth of its import, and twice as long when the process ended.
    """
    # Before as well: collections are seldom from here on.
    memory.freeze()
    with without(*hidden):
        framework = import_module(name)
    memory.freeze()
    return framework
