"""Batchers for tests of batching."""

import pytest

from app.batching.batcher import Batcher
from app.batching.release import FixedTimeout
from tests.support.jobs import Notes, executor


@pytest.fixture(name="serve")
def _serve():
    """Start a Batcher of 4 rows a batch and 16 in the queue; close it at the end."""
    started = []

    def serve(engine, release=None, observer=None, sizes=(), **rest):
        release, observer = release or FixedTimeout(0), observer or Notes()
        batcher = Batcher(
            executor(engine, 4, observer, sizes, **rest), release, 16, observer
        )
        started.append((engine, batcher))
        batcher.start()
        return batcher

    yield serve
    for engine, batcher in started:
        engine.unblock()
        batcher.close(10)
