"""The machine of all tests of the shared model."""

import pytest

from tests.support.shared_model import EventLoop, Machine


@pytest.fixture(name="loop")
def _loop():
    """An event loop that runs in a thread."""
    loop = EventLoop()
    yield loop
    loop.close()


@pytest.fixture(params=["threads", "event loop"])
def machine(tmp_path, loop, request):
    """A machine whose web workers read in threads, and one where they have a loop."""
    machine = Machine(tmp_path, loop if request.param == "event loop" else None)
    yield machine
    machine.close()
