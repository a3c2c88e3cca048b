"""Names of spans."""

from types import SimpleNamespace

import pytest

from app.api.application import completed
from app.api.exchange import Exchange, HttpResponse
from app.tracing.traced_application import TracedApplication


class Spans:
    """Samples each request, and keeps the name of its span."""

    def __init__(self):
        self.names = []

    def begin_request(self, environ, arrived_at):
        return SimpleNamespace(traceparent="00-1-1-01")

    def request(self, request, whole, outcome, stages):
        self.names.append(whole.name)


@pytest.fixture(name="application")
def _application():
    application = TracedApplication("traced")
    application.install_handlers((), lambda _: None, None, lambda *_: None)
    application.spans = Spans()
    return application


async def answered(exchange):
    """Answer as a handler does that has found the model."""
    observer = SimpleNamespace(request_answered=lambda *_: None)
    exchange.model = SimpleNamespace(name="m", version=1, observer=observer)
    return HttpResponse(b"{}")


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
def test_name_is_the_same_for_all_ways_to_write_a_path(application, path, name):
    """Names of models and labels stay as they are."""
    exchange = Exchange({"REQUEST_METHOD": "POST", "PATH_INFO": path})
    completed(application.predict(answered, exchange))
    assert application.spans.names == [f"POST {name}"]
