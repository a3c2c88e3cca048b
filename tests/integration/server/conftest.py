"""What the tests of the event-loop worker share."""

import pytest


@pytest.fixture
def connect(server):
    """Open connections to the module's server, which are closed with the test."""
    yield server.connect
    server.close_wires()
