"""An inference request: who waits for it."""

import time

import pytest

from app.api.exchange import Exchange
from app.errors import Late


def test_check_raises_once_the_deadline_has_passed():
    """Long work that calls it between its parts ends soon after the deadline."""
    exchange = Exchange({"REQUEST_METHOD": "POST"})
    exchange.check_awaited()
    exchange.deadline = time.monotonic() + 60
    exchange.check_awaited()
    exchange.deadline = time.monotonic()
    with pytest.raises(Late, match="deadline passed before its rows were decoded"):
        exchange.check_awaited()
