"""When a server is ready: while all that was ready once serves."""

import pytest

from app.errors import ModelLoadError
from app.repository.catalog import Catalog
from app.run_dir import Notes
from tests.support.engines import Blocks
from tests.support.loading import TIMEOUT_S, Loading

FAILS = ModelLoadError("no weights")


@pytest.fixture(name="loading")
def _loading(tmp_path):
    made = Loading(tmp_path)
    yield made
    made.close()


def test_server_is_ready_after_the_last_load_of_its_start(loading):
    """A failed model does not count, and one that still loads does."""
    loading.add("apples")
    loading.add("broken", engine=FAILS)
    slow = loading.add("slow", engine=Blocks())
    loading.loader.start()
    slow.wait_until_started()
    assert loading.catalog.models()
    assert not loading.catalog.is_ready()
    slow.unblock()
    assert loading.loader.wait(TIMEOUT_S)
    assert loading.catalog.not_ready() == {"broken": "no weights"}
    assert loading.catalog.is_ready()


def test_server_without_any_model_that_serves_is_not_ready(loading):
    """All have failed; the first one that is mended makes it ready."""
    loading.add("apples", engine=FAILS)
    loading.add("pears", engine=FAILS)
    assert not loading.load().is_ready()
    loading.add("apples", 2)
    loading.rescan()
    assert loading.catalog.is_ready()
    assert list(loading.catalog.not_ready()) == ["pears"]
    loading.unloaded.add("apples")
    loading.rescan()
    assert not loading.catalog.is_ready()


def test_new_model_leaves_the_server_ready_while_it_loads_and_fails(loading):
    """Once it has served, the server is not ready without it."""
    loading.add("apples")
    catalog = loading.load()
    slow = loading.add("new", engine=Blocks())
    loading.add("newer", engine=FAILS)
    # Its scan is not waited for.
    loading.loader.rescan(timeout_s=0)
    slow.wait_until_started()
    assert catalog.not_ready()["new"] == "is loading"
    assert catalog.is_ready()
    slow.unblock()
    loading.rescan()
    assert list(catalog.not_ready()) == ["newer"]
    assert catalog.is_ready()
    loading.remove("new", 1)
    loading.rescan()
    assert not catalog.is_ready()


@pytest.mark.parametrize("by", ["folder", "unload"])
def test_model_that_the_operator_removes_counts_no_more(loading, by):
    """Not even when it comes back and fails."""
    loading.add("apples")
    loading.add("pears")
    catalog = loading.load()
    loading.remove("pears", 1)
    loading.rescan()
    assert not catalog.is_ready()
    if by == "folder":
        (loading.folder / "pears").rmdir()
    else:
        loading.unloaded.add("pears")
    loading.rescan()
    assert catalog.is_ready()
    loading.unloaded.discard("pears")
    loading.add("pears", 2, FAILS)
    loading.rescan()
    assert catalog.not_ready() == {"pears": "no weights"}
    assert catalog.is_ready()


def test_default_model_that_is_not_there_always_counts(tmp_path):
    """Requests that name no model can't be answered, whatever else serves."""
    loading = Loading(tmp_path, default_model="missing")
    loading.add("apples")
    loading.add("pears")
    assert not loading.load().is_ready()
    loading.close()


def test_all_processes_agree_on_what_was_ready_once(tmp_path):
    """One that starts later counts what served in another, and no failed model."""
    notes = Notes(tmp_path / "notes")
    first = Loading(tmp_path / "models", ready_once=notes)
    first.add("apples")
    first.add("broken", engine=FAILS)
    first.add("pears")
    assert first.load().is_ready()
    later = Loading(first.folder, ready_once=notes)
    later.engines = {**first.engines, ("pears", "1"): FAILS}
    assert not later.load().is_ready()
    later.add("pears", 2)
    later.rescan()
    assert later.catalog.is_ready()
    strict = Catalog(None, None, notes, needs_all=True)
    strict.announce("apples")
    assert not strict.is_ready()
    first.close()
    later.close()
