"""Names of spans."""

from types import SimpleNamespace

import pytest

from app.call import Call, Head, Peer
from app.tracing.traced_calls import TracedCalls


class Spans:
    """Samples each request, and keeps the name of its span."""

    def __init__(self):
        self.names = []

    def begin_request(self, head, arrived_at):
        return SimpleNamespace(traceparent="00-1-1-01")

    def request(self, request, whole, outcome, stages):
        self.names.append(whole.name)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/predict", "/predict"),
        ("/V1/Models/M:PREDICT", "/v1/models/M:predict"),
        ("/v1/models/007/versions/007:predict", "/v1/models/007/versions/7:predict"),
        ("/v1/models/m/Labels/Canary:predict", "/v1/models/m/labels/Canary:predict"),
        ("/v2/models/M/versions/01/infer", "/v2/models/M/versions/1/infer"),
    ],
)
def test_name_is_the_same_for_all_ways_to_write_a_path(path, name):
    """Names of models and labels stay as they are."""
    spans = Spans()
    traced = TracedCalls(spans)
    call = Call(Head("POST", path, "", {}), b"", Peer("", 0, "unix", 0))
    traced.begin(call)
    call.model, call.status = SimpleNamespace(name="m", version=1), 200
    call.ended_at = call.arrived_at + 1
    traced.ended([call])
    assert spans.names == [f"POST {name}"]
