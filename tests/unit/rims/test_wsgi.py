"""Which requests the application answers itself, and which Flask answers."""

import json
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import create_app
from app.settings import Settings

ROW = b'{"instances": [[1.0, 2.0, 3.0]]}'
PREDICTING = (
    *("/predict", "/stream_predict"),
    *("/v1/models/echo:predict", "/V1/models/echo/versions/1:predict"),
)
pieces = st.sampled_from(
    [
        *("/", "v1", "V1", "v2", "models", "echo", "versions", "labels", "1", "٣"),
        *(":predict", ":PREDICT", ":regress", "infer", "predict", "stream_predict"),
        *("stable", "metadata", "config", "ready", "é", "\udcff", "%2F", "?", " "),
        *("9" * 25, "9" * 5000, "-1", ".."),
    ]
)
paths = st.lists(pieces, max_size=9).map(lambda found: "/" + "".join(found))


@pytest.fixture(name="application", scope="module")
def _application(tmp_path_factory):
    """An application with one simulated model, and the calls that came to Flask."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "echo" / "1").mkdir(parents=True)
    simulation = {"base_ms": 0, "input_shape": [3], "outputs": 2}
    (folder / "echo" / "1" / "simulated.json").write_text(json.dumps(simulation))
    server = create_app(Settings(model_dir=folder))
    application, loader = server.flask, server.loader
    loader.start()
    assert loader.wait(10)
    seen = []
    application.before_request(lambda: seen.append(1) and None)
    yield application, seen
    loader.close(10)


@pytest.mark.parametrize("path", PREDICTING)
def test_predictions_do_not_reach_flask(application, path):
    """Flask's hooks see no request that predicts, and it is answered."""
    application, seen = application
    seen.clear()
    reply = application.test_client().post(path, data=ROW)
    assert reply.json == {"predictions": [[1.0, 2.0]]}
    assert not seen


@pytest.mark.parametrize("path", ["/predict", "/v2/models/echo/infer"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_other_methods_of_a_prediction_return_405(application, method, path):
    """Any other method is a 405 that names POST."""
    reply = application[0].test_client().open(path, method=method)
    assert reply.status_code == 405
    assert "POST" in reply.headers["Allow"]
    assert "takes no" in reply.json["error"]


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(path=paths)
def test_flask_declares_the_paths_that_predict(application, caplog, path):
    """No POST reaches a route of Flask's that has no view: that would be a 500."""
    caplog.clear()
    environ = {"PATH_INFO": path.encode("utf-8", "surrogateescape").decode("latin-1")}
    with caplog.at_level(logging.ERROR):
        reply = (
            application[0]
            .test_client()
            .post("/", data=ROW, environ_overrides=environ | {"RAW_URI": ""})
        )
    assert reply.status_code < 500 or reply.status_code == 501, path[:200]
    assert not caplog.records


def test_path_without_raw_uri_is_rebuilt_below_a_mount(application):
    """Where a server gives no raw path, the mount's prefix is not removed twice."""
    mounted = {"SCRIPT_NAME": "/v1", "PATH_INFO": "/v1/models/echo:predict"}
    environ = mounted | {"RAW_URI": "", "REQUEST_URI": ""}
    reply = application[0].test_client().post("/", data=ROW, environ_overrides=environ)
    assert reply.status_code == 200
