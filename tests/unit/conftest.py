"""Fixtures that unit tests share."""

import gc

import pytest

from app import create_app, memory
from app.batching.batcher import Batcher
from app.settings import Settings
from tests.support.werkzeug_private import routes_compiled_once


@pytest.fixture(scope="module", autouse=True)
def _frozen_tests():
    """Keep the test session's own objects out of the collections after each load.

    With thousands of tests in the process each would take a third of a second.
    """
    memory.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _compiled_routes():
    with routes_compiled_once():
        yield


@pytest.fixture(name="client_of")
def _client_of():
    """Start the application that settings describe, and give a client of it."""
    loaders = []

    def client_of(*, wait=True, **settings):
        server = create_app(Settings(**settings))
        loader = server.loader
        loaders.append(loader)
        loader.start()
        if wait:
            assert loader.wait(10)
        return server.flask.test_client()

    yield client_of
    for loader in loaders:
        loader.close(10)


@pytest.fixture(name="submitted")
def _submitted(monkeypatch):
    """The jobs that come to a batcher."""
    jobs = []
    submit = Batcher.submit

    def note(batcher, job):
        jobs.append(job)
        submit(batcher, job)

    monkeypatch.setattr(Batcher, "submit", note)
    return jobs
