"""The machine of all tests of the shared model."""

import pytest

from tests.support.shared_model import Machine


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.close()
