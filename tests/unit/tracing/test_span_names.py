"""Names of spans."""

from types import SimpleNamespace

import pytest

from app.call import Call, Head, Peer
from app.tracing.spans import span_name_of


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
    call = Call(Head("POST", path, "", {}), b"", Peer("", 0, "unix", 0))
    call.model = SimpleNamespace(name="m", version=1)
    assert span_name_of(call) == f"POST {name}"
