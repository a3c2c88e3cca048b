"""Imports of frameworks: packages that they do not find, and garbage collections."""

import gc
import importlib
import sys
import threading

import pytest

from app import memory
from app.engines.optional_imports import import_framework, without

NAME = "optional"


@pytest.fixture(autouse=True)
def _package(tmp_path, monkeypatch):
    """A package that can be imported, and is not imported yet."""
    (tmp_path / f"{NAME}.py").write_text("VALUE = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(NAME, None)


def _value():
    return importlib.import_module(NAME).VALUE


def test_hidden_package_is_not_found_and_is_afterwards():
    """A framework that tries the import continues without the package."""
    with (
        pytest.raises(ModuleNotFoundError, match="No module named 'optional'"),
        without(NAME),
    ):
        _value()
    assert _value() == 5


def test_package_that_is_imported_already_is_found():
    """Whoever imported it first keeps it."""
    _value()
    with without(NAME):
        assert _value() == 5


def test_other_packages_are_found():
    """Only the named ones are hidden."""
    with without("another"):
        assert _value() == 5


def test_other_thread_finds_a_hidden_package():
    """A service.py that is imported meanwhile may need it."""
    seen = []
    with without(NAME):
        thread = threading.Thread(target=lambda: seen.append(_value()))
        thread.start()
        thread.join()
    assert seen == [5]


def test_import_under_way_finds_its_package_when_hiding_ends(monkeypatch):
    """An import in another thread asks each of its finders, also meanwhile."""

    class EndsHiding:
        """The first finder of the other import, which ends the block."""

        def find_spec(self, *_):
            block.__exit__(None, None, None)

    finders = [EndsHiding(), *sys.meta_path]
    # The one that finds the package is next.
    finders.insert(1, finders.pop())
    monkeypatch.setattr(sys, "meta_path", finders)
    block = without("another")
    block.__enter__()
    assert _value() == 5


def test_framework_is_imported_with_few_garbage_collections(tmp_path):
    """Its objects are seldom visited meanwhile, and never again."""
    (tmp_path / f"{NAME}.py").write_text("import gc\nSEEN = gc.get_threshold()\n")
    importlib.invalidate_caches()
    gc.set_threshold(700)
    framework = import_framework(NAME)
    assert framework.SEEN[0] >= 50_000
    assert memory.is_frozen(framework)
    with pytest.raises(ModuleNotFoundError):
        import_framework("missing")
