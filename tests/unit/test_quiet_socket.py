"""A socket that keeps the interpreter's lock does all that Python's own does."""

import socket
import threading

import pytest

from app.workers.quiet_socket import QuietSocket

PATIENCE_S = 10
LARGE_BYTES = 1 << 21


@pytest.fixture(name="pair")
def _pair():
    """One of ours, and Python's own at the other end."""
    ours, theirs = socket.socketpair()
    with QuietSocket.of(ours) as quiet, theirs:
        theirs.settimeout(PATIENCE_S)
        yield quiet, theirs


def test_it_takes_a_connection_over():
    """The descriptor and the timeout are those of before, and the old one has none."""
    ours, theirs = socket.socketpair()
    ours.settimeout(3)
    number = ours.fileno()
    with theirs, QuietSocket.of(ours) as quiet:
        assert quiet.fileno() == number
        assert quiet.gettimeout() == 3
    assert ours.fileno() < 0


def test_what_is_there_is_received(pair):
    """Bytes come as they were sent, at most so many as were asked for."""
    quiet, theirs = pair
    theirs.sendall(b"abcdefgh")
    assert quiet.recv(3) == b"abc"
    buffer = bytearray(4)
    assert quiet.recv_into(memoryview(buffer)[:2]) == 2
    assert buffer == b"de\0\0"
    assert quiet.recv(100) == b"fgh"


def test_the_end_is_empty(pair):
    """Where the other end has closed there is nothing, as always."""
    quiet, theirs = pair
    theirs.close()
    assert quiet.recv(10) == b""
    assert quiet.recv_into(bytearray(10)) == 0


def test_it_waits_for_bytes(pair):
    """What is not there yet is waited for, without holding up other threads."""
    quiet, theirs = pair
    sender = threading.Timer(0.01, theirs.sendall, (b"late",))
    sender.start()
    assert quiet.recv(10) == b"late"
    sender.join()


@pytest.mark.parametrize("size", [10, LARGE_BYTES])
def test_it_can_be_told_not_to_wait(pair, size):
    """A socket that does not block says at once that there is nothing."""
    quiet, _ = pair
    quiet.setblocking(False)
    with pytest.raises(BlockingIOError):
        quiet.recv(size)
    with pytest.raises(BlockingIOError):
        quiet.recv_into(bytearray(size))
    quiet.setblocking(True)
    assert quiet.getblocking()


@pytest.mark.parametrize("size", [0, 1, 1 << 16, LARGE_BYTES])
def test_all_is_sent(pair, size):
    """Whatever the size, all bytes arrive, in order."""
    quiet, theirs = pair
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    sender = threading.Thread(target=quiet.sendall, args=(data,))
    sender.start()
    with theirs.makefile("rb") as file:
        assert file.read(size) == data
    sender.join(PATIENCE_S)


def test_a_small_answer_waits_for_room(pair):
    """Where the kernel takes no more, the rest is sent when it does."""
    quiet, theirs = pair
    pieces = 200
    sender = threading.Thread(
        target=lambda: [quiet.sendall(b"x" * 60_000) for _ in range(pieces)]
    )
    sender.start()
    with theirs.makefile("rb") as file:
        assert file.read(60_000 * pieces).count(b"x") == 60_000 * pieces
    sender.join(PATIENCE_S)


def test_who_has_gone_is_an_error(pair):
    """To send to who has gone raises what Python's own does, and no signal."""
    quiet, theirs = pair
    theirs.close()
    with pytest.raises(BrokenPipeError):
        quiet.sendall(b"x")


def test_a_closed_one_is_an_error(pair):
    """After its end each call is an error of the descriptor."""
    quiet, _ = pair
    quiet.close()
    for call in (lambda: quiet.recv(1), lambda: quiet.sendall(b"x")):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()
