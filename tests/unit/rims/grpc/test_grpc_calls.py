"""Whose call it is, and the codes of errors."""

from types import SimpleNamespace

import grpc
import pytest

from app import errors
from app.call import Head
from app.rims.grpc.calls import METHODS, GrpcCalls, headers_of, peer_of
from app.serving.asks import Asks


def kinds_of(kind):
    """Return an error's class and all that are made of it."""
    return [kind, *(each for one in kind.__subclasses__() for each in kinds_of(one))]


@pytest.mark.parametrize("kind", kinds_of(errors.BasketError))
def test_each_error_has_a_code(kind):
    """The status of each error is mapped to a code that gRPC has."""
    assert errors.GRPC_CODES[kind.status] in grpc.StatusCode.__members__


class Context:
    """A call's context, with an address as gRPC writes it."""

    def __init__(self, peer, **metadata):
        self._peer = peer
        self._metadata = [(k.replace("_", "-"), v) for k, v in metadata.items()]

    def peer(self):
        return self._peer

    def invocation_metadata(self):
        return self._metadata


def client_of(context):
    """Return whose part of the queue a call's rows take."""
    head = Head("POST", "/m", "", headers_of(context.invocation_metadata()))
    return Asks(head, 1000, 1 << 20).client_key or peer_of(context.peer()).client


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.7:5000", "192.0.2.7"),
        ("ipv6:%5B2001:db8::7%5D:5000", "2001:db8::7"),
        ("ipv6:[::1]:5000", "::1"),
        ("unknown", ""),
    ],
)
def test_client_is_its_address_without_a_port(peer, address):
    """A client's connections share a part of the queue, as those of HTTP do."""
    context = Context(peer)
    assert peer_of(context.peer()).client == client_of(context) == address


@pytest.mark.parametrize(
    ("metadata", "client"),
    [
        ({"x_client_id": "till 7"}, "till 7"),
        ({"x_client_id": "till 7", "authorization": "Bearer k"}, "k"),
        ({"user_agent": "grpc", "x_client_id_bin": b"till"}, "192.0.2.7"),
        ({"x_client_id": b"till"}, "192.0.2.7"),
    ],
)
def test_client_is_named_by_metadata(metadata, client):
    """The key, or else x-client-id, names a client; other metadata does not."""
    assert client_of(Context("ipv4:192.0.2.7:5000", **metadata)) == client


def test_only_open_and_unbuilt_methods_need_no_key():
    """Of all others, a call without a key is refused before its message."""

    def check_head(head, address, now):
        raise errors.Unauthorized("no key")

    predictor = SimpleNamespace(direct=lambda *_: None, check_head=check_head)
    calls = GrpcCalls(None, predictor, None, None)
    refused, free = set(), set()
    for path, method in METHODS.items():
        details = SimpleNamespace(method=path, invocation_metadata=())
        # One that refuses is made for the call.
        is_kept = calls.service(details) is calls.service(details)
        (free if is_kept else refused).add(method.name)
        assert is_kept == bool(method.is_open or method.unsupported)
    assert {"ServerLive", "ServerReady", "ModelReady", "LogSettings"} <= free
    assert {"ModelInfer", "ModelStreamInfer", "Predict", "GetModelStatus"} <= refused
