"""Which objects garbage collections visit, and when there are collections."""

import gc

import pytest

from app import memory
from testing.processes import run_python
from testing.server import simulated_models
from tests.support.shared_model import Machine


@pytest.fixture
def unfrozen(monkeypatch):
    """Collect as Python does by itself; return the calls that freeze all objects."""
    threshold, calls = gc.get_threshold(), []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    gc.set_threshold(700)
    yield calls
    gc.set_threshold(*threshold)


def test_server_is_frozen_before_it_loads_models(tmp_path):
    """Once it is imported, collections are seldom, and do not visit the server."""
    program = "import app.rims.asgi, gc, wsgi; print(gc.get_threshold()[0]); "
    program += "from app import memory; print(memory.is_frozen(app.rims.asgi))"
    models = simulated_models(tmp_path, m={})
    printed = run_python("-c", program, BASKET_MODEL_DIR=models)
    assert printed.split() == ["50000", "True"]


def test_model_process_is_frozen_before_it_loads_models(tmp_path, unfrozen):
    """It imports no wsgi.py."""
    machine = Machine(tmp_path)
    try:
        machine.process()
        assert (unfrozen, gc.get_threshold()[0]) == (["freeze"], 50_000)
    finally:
        machine.close()


@pytest.mark.parametrize(
    ("unfreeze", "calls"), [(False, []), (True, ["unfreeze", "freeze"])]
)
def test_collection_visits_frozen_objects_only_if_it_must(
    unfrozen, monkeypatch, unfreeze, calls
):
    """They are many, and all requests wait meanwhile."""
    monkeypatch.setattr(gc, "unfreeze", lambda: unfrozen.append("unfreeze"))
    memory.collect(unfreeze=unfreeze)
    assert unfrozen == calls
