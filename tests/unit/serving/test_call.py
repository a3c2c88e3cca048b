"""A call: who waits for it."""

import time

import pytest

from app.call import Call, Head, Peer
from app.errors import Abandoned, Late


@pytest.fixture(name="call")
def _call():
    return Call(Head("POST", "/predict", "", {}), b"", Peer("", 0, "unix", 0))


def test_check_raises_once_the_deadline_has_passed(call):
    """Long work that calls it between its parts ends soon after the deadline."""
    call.check_awaited()
    call.deadline = time.monotonic() + 60
    call.check_awaited()
    call.deadline = time.monotonic()
    with pytest.raises(Late, match="deadline passed before its rows were decoded"):
        call.check_awaited()


def test_check_raises_once_the_client_has_disconnected(call):
    """Long work for nobody ends soon."""
    call.is_gone = True
    with pytest.raises(Abandoned, match="disconnected before its rows were decoded"):
        call.check_awaited()
