"""Which requests are answered below Flask, and which by it."""

import asyncio
import json
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from werkzeug.test import create_environ

from app import create_app
from app.api import inference
from app.coroutines import completed
from app.settings import Settings
from app.workers import unreader

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
    application = create_app(Settings(model_dir=folder))
    loader = application.extensions["basket"]
    loader.start()
    assert loader.wait(10)
    seen = []
    application.before_request(lambda: seen.append(1) and None)
    yield application, seen
    loader.close(10)


@pytest.mark.parametrize("path", PREDICTING)
def test_predictions_do_not_come_to_flask(application, path):
    """Flask's hooks see no request that predicts, and it is answered all the same."""
    application, seen = application
    seen.clear()
    reply = application.test_client().post(path, data=ROW)
    assert reply.json == {"predictions": [[1.0, 2.0]]}
    assert not seen


@pytest.mark.parametrize("path", ["/predict", "/v2/models/echo/infer"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_flask_says_which_method_a_prediction_has(application, method, path):
    """Any other method is a 405 that names POST."""
    reply = application[0].test_client().open(path, method=method)
    assert reply.status_code == 405
    assert "POST" in reply.headers["Allow"]
    assert "takes no" in reply.json["error"]


@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(path=paths)
def test_both_know_the_same_paths(application, caplog, path):
    """No POST is left to a route of Flask's that has no view: that would be a 500."""
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


def test_a_line_that_suspends_is_no_line_for_wsgi():
    """What waits for an event loop can't be driven without one, and says so."""

    async def sleeps():
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="waits for an event loop"):
        completed(sleeps())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_flask_answers_elsewhere_has_one_length(application, method):
    """A shared thread gives all but predictions away, and Flask's headers are kept."""
    environ = create_environ("/healthz", method=method)
    headers = []
    line = application[0].on_shared_thread(
        environ, lambda status, given: headers.extend(given), wake=None
    )
    call = line.send(None)
    assert headers == []
    with pytest.raises(StopIteration) as end:
        line.send(call())
    body = b"".join(end.value.value)
    (length,) = [value for name, value in headers if name == "Content-Length"]
    assert int(length) > 0
    assert len(body) == (int(length) if method == "GET" else 0)


def test_what_flask_answers_goes_no_way_round(application, monkeypatch):
    """A shared thread looks once whether a request predicts, then asks Flask."""
    found = []
    monkeypatch.setattr(application[0], "_finds", [found.append])
    environ = create_environ("/v1/models/echo:regress", method="POST")
    line = application[0].on_shared_thread(environ, lambda *_: None, wake=None)
    call = line.send(None)
    call()
    assert len(found) == 1


def test_what_the_main_loop_reads_it_decodes():
    """A body that Gunicorn's main loop takes is also small enough to decode there."""
    assert unreader._SMALL_BYTES == inference._QUICK_BYTES


def test_below_a_mount_a_path_is_made_again(application):
    """Where a server gives no path as it came, the mount's is not taken off twice."""
    mounted = {"SCRIPT_NAME": "/v1", "PATH_INFO": "/v1/models/echo:predict"}
    environ = mounted | {"RAW_URI": "", "REQUEST_URI": ""}
    reply = application[0].test_client().post("/", data=ROW, environ_overrides=environ)
    assert reply.status_code == 200
