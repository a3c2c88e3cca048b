"""What the connection tells about the client."""

import socket

import pytest

from app.api.client import hung_up


@pytest.fixture(name="ends")
def _ends():
    """Our end of a connection, and the client's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def _check(ours):
    return hung_up({"gunicorn.socket": ours})


def test_an_open_connection_has_not_hung_up(ends):
    """A client that waits for its answer is there."""
    assert not _check(ends[0])()


def test_a_pipelined_request_is_no_hang_up(ends):
    """A client that has sent its next request already is there, and so is that."""
    ours, theirs = ends
    theirs.sendall(b"GET /healthz HTTP/1.1")
    assert not _check(ours)()
    assert ours.recv(100) == b"GET /healthz HTTP/1.1"


@pytest.mark.parametrize("unread", [b"", b"more"], ids=["all read", "bytes unread"])
def test_a_closed_connection_has_hung_up(ends, unread):
    """A client that closes while the check is there is gone from then on."""
    ours, theirs = ends
    check = _check(ours)
    assert not check()
    theirs.sendall(unread)
    theirs.close()
    assert check()
    assert check()


def test_a_connection_that_is_closed_here_has_hung_up(ends):
    """A socket that the server has closed already counts as gone."""
    ours, _ = ends
    ours.close()
    assert _check(ours)()


def test_a_server_that_gives_no_socket_knows_of_no_hang_up():
    """Without a socket in the environ the client counts as there."""
    assert not hung_up({})()
