"""Rights of gRPC's calls, which are checked before a message is received."""

from types import SimpleNamespace

import pytest

from app.errors import Unauthorized
from app.protocols.inference_service import INFER
from app.rims.grpc import server
from app.rims.grpc.calls import PredictingCalls
from app.rims.grpc.server import GrpcServer
from app.serving.predictor import Limits, Predictor


class Rights:
    """Notes the headers of each check; `error` is raised."""

    origins = None

    def __init__(self):
        self.checked = []
        self.error = None

    def check(self, headers, address):
        self.checked.append((headers, address))
        if self.error is not None:
            raise self.error


@pytest.fixture
def clock(monkeypatch):
    """Stop the time, in seconds, which the test sets."""
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(server, "time", clock)
    return now


@pytest.fixture
def rights():
    return Rights()


@pytest.fixture
def ask(rights, monkeypatch):
    """Return what returns the handler of a call with a key."""
    predictor = Predictor(None, rights, (), (), Limits(1000, 1000))
    asked = GrpcServer("", None, predictor, None, rights)
    calls = PredictingCalls(predictor, None, lambda: None)
    monkeypatch.setattr(asked, "_calls", calls, raising=False)
    monkeypatch.setattr(asked, "_handlers", {INFER.path: "infer"})

    def service(key="key", path=INFER.path):
        metadata = (("authorization", f"Bearer {key}"), ("te", "trailers"))
        return asked.service(SimpleNamespace(method=path, invocation_metadata=metadata))

    return service


def test_rights_of_equal_calls_are_checked_twice_a_second(clock, rights, ask):
    """What one call may, others with the same metadata may too, but not for long."""
    for seconds in (0.0, 0.49, 0.51, 0.99, 1.02):
        clock[0] = 100.0 + seconds
        assert ask() == "infer"
    assert rights.checked == [({"authorization": "Bearer key"}, "grpc")] * 3
    ask("another")
    assert rights.checked[3:] == [({"authorization": "Bearer another"}, "grpc")]


@pytest.mark.usefixtures("clock")
def test_refused_call_is_checked_each_time(rights, ask):
    """A refusal is not remembered: the key may be added."""
    rights.error = Unauthorized("no key")
    assert [ask() == "infer" for _ in range(2)] == [False, False]
    rights.error = None
    assert ask() == "infer"
    assert len(rights.checked) == 3


def test_unknown_method_has_no_handler(rights, ask):
    """The answer is that it is not built; nothing is checked."""
    assert ask(path="/strange") is None
    assert not rights.checked
