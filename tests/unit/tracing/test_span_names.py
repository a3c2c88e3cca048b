"""Names of spans."""

import pytest

from app.api.exchange import Exchange
from app.tracing import traced_application


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
    exchange = Exchange({"REQUEST_METHOD": "POST", "PATH_INFO": path})
    exchange.model = object()
    assert traced_application._name(exchange) == f"POST {name}"
