"""POST /predict and health: statuses, headers, texts, API keys and metrics."""

import hmac
import io
import itertools
import json
import re
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app import create_app
from app.batching.batcher import Batcher
from app.batching.executor import Executor
from app.engines.base import DEFAULT_SIGNATURE, TensorSpec
from app.errors import OutOfDeviceMemory, QueueFull
from app.settings import Settings
from testing.server import wait_until
from tests.support.engines import Blocks, Echo, Fails, Raises
from tests.support.exchanges import error, npy_of, started_client

NPY = "application/x-npy"
AN_HOUR = 3_600_000_000
ROW = [1.0, 2.0, 3.0]


def write_model(root, name, **simulation):
    """Write a simulated model that takes no time, as version 7."""
    folder = root / name / "7"
    folder.mkdir(parents=True)
    simulation = {"base_ms": 0, "input_shape": [3], "outputs": 2} | simulation
    (folder / "simulated.json").write_text(json.dumps(simulation))


@pytest.fixture(name="models")
def _models(tmp_path):
    return partial(write_model, tmp_path)


@pytest.fixture(name="serve")
def _serve(tmp_path, models, client_of):
    """Start an application with one model, unless there are some; return a client."""

    def serve(**settings):
        if not any(tmp_path.iterdir()):
            models("echo")
        return client_of(model_dir=tmp_path, **settings)

    return serve


@pytest.fixture(name="root", scope="module")
def _root(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_model(root, "echo")
    return root


@pytest.fixture(name="client", scope="module")
def _client(root):
    """A client for all tests that need no settings and no engine."""
    with started_client(root) as client:
        yield client


@pytest.fixture(name="keyed_client", scope="module")
def _keyed_client(root):
    """A client of an application with two API keys."""
    with started_client(root, api_keys=("one", "two")) as client:
        yield client


@pytest.fixture(name="use_engine")
def _use_engine(monkeypatch):
    """Have every model run on this engine."""

    def use(engine):
        monkeypatch.setattr("app.engines.simulated.open_engine", lambda *_: engine)
        return engine

    return use


def _predict(client, *rows, headers=None, **rest):
    return client.post(
        "/predict", json={"instances": list(rows)}, headers=headers, **rest
    )


# Responses.


def test_rows_are_answered_with_predictions(client):
    """Each row gets its prediction, in order."""
    response = _predict(client, [1, 2, 3], [4, 5, 6])
    assert response.status_code == 200
    assert response.mimetype == "application/json"
    assert response.json == {"predictions": [[1, 2], [4, 5]]}


@pytest.mark.parametrize("batching", [True, False], ids=["batched", "unbatched"])
def test_response_headers_have_version_batch_and_times(serve, batching):
    """Version, rows of the batch, and four times in ms are headers."""
    response = _predict(serve(batching=batching), ROW, ROW)
    assert response.headers["X-Model-Version"] == "7"
    assert response.headers["X-Batch-Size"] == "2"
    duration = r";dur=\d+\.\d{3}"
    names = ("decode", "queue", "infer", "encode")
    wanted = ", ".join(name + duration for name in names)
    assert re.fullmatch(wanted, response.headers["Server-Timing"])


def test_server_timing_is_in_milliseconds(serve, monkeypatch):
    """A batch that takes a second is 1000 in Server-Timing."""
    clock = partial(next, itertools.count(1000))
    monkeypatch.setattr(
        "app.repository.loading.opener.Executor", partial(Executor, clock=clock)
    )
    timing = _predict(serve(), ROW).headers["Server-Timing"]
    assert ", infer;dur=1000.000, " in timing


def test_concurrent_requests_share_a_batch(serve):
    """Two requests that fill a batch are answered from one batch of two."""
    client = serve(max_batch_size=2, batch_timeout_micros=AN_HOUR)
    responses = {}

    def post(value):
        responses[value] = _predict(client.application.test_client(), [value] * 3)

    threads = [threading.Thread(target=post, args=(value,)) for value in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for value, response in responses.items():
        assert response.json == {"predictions": [[value, value]]}
        assert response.headers["X-Batch-Size"] == "2"


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", None])
def test_body_is_json_by_default(client, content_type):
    """A body whose Content-Type is not .npy or an image is read as JSON."""
    body = json.dumps({"instances": [ROW]})
    response = client.post("/predict", data=body, content_type=content_type)
    assert response.json == {"predictions": [[1, 2]]}


@pytest.mark.parametrize("content_type", ["application/json", NPY])
@pytest.mark.parametrize(
    ("accept", "mimetype"),
    [
        (NPY, NPY),
        ("Application/X-NPY", NPY),
        ("application/json;q=0.9, application/x-npy; q=0.5", NPY),
        ("application/x-npy;v=1", NPY),
        ("application/x-npy;q=0", "application/json"),
        ("application/x-npy; Q=0.0, */*", "application/json"),
        ("application/x-npyz, */*", "application/json"),
        (None, "application/json"),
    ],
)
def test_npy_in_and_out(client, content_type, accept, mimetype):
    """Predictions are .npy if Accept names it in any case and without q=0."""
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    body = npy_of(rows) if content_type == NPY else _body(rows.tolist())
    headers = {} if accept is None else {"Accept": accept}
    response = client.post(
        "/predict", data=body, content_type=content_type, headers=headers
    )
    assert (response.status_code, response.content_type) == (200, mimetype)
    assert response.headers["X-Batch-Size"] == "2"
    if mimetype == NPY:
        predictions = np.load(io.BytesIO(response.data))
        assert predictions.dtype == np.float32
    else:
        predictions = np.array(response.json["predictions"])
    assert predictions.tolist() == [[0, 1], [3, 4]]


def _body(instances):
    return json.dumps({"instances": instances}).encode()


# Client errors.


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(b"", "The document is empty", id="empty"),
        pytest.param(b"{", "JSON Parse error", id="not JSON"),
        pytest.param(b"[]", "expected a JSON object", id="no object"),
        pytest.param(b"{}", "Missing 'inputs' or 'instances'", id="no rows at all"),
        pytest.param(_body([]), "at least one row", id="no rows"),
        pytest.param(_body([ROW, [1, 2]]), "instances[1]", id="wrong shape"),
        pytest.param(_body([[1, 2, "3"]]), "instances[0][2]", id="a string"),
        pytest.param(b"\x93NUMPY", "not a .npy array", id="npy"),
    ],
)
def test_bad_input_is_a_400_with_the_place(client, body, text):
    """A body that the model does not take is a 400 with the reason and the place."""
    content_type = NPY if body.startswith(b"\x93") else None
    response = client.post("/predict", data=body, content_type=content_type)
    assert text in error(response, 400)


def test_npy_needs_the_default_signature(serve, use_engine):
    """For a model without serving_default, .npy is a 400."""
    engine = use_engine(Echo())
    engine.signatures = {"other": engine.signatures["serving_default"]}
    body = npy_of(np.array([ROW], np.float32))
    response = serve().post("/predict", data=body, content_type=NPY)
    assert "serving_default" in error(response, 400)


def test_readyz_describes_the_default_signature(serve, use_engine):
    """Of several signatures /readyz shows the default one, at any position."""
    engine = use_engine(Echo())
    default = engine.signatures["serving_default"]
    (spec,) = default.inputs
    other = replace(default, inputs=(replace(spec, shape=(7,)),))
    engine.signatures = {"other": other, **engine.signatures}
    (field,) = serve().get("/readyz").json["models"]["echo"]["inputs"]
    assert field["shape"] == [None]


@pytest.mark.parametrize("path", ["/v1", "/predict/", "/predict/x", "/v9"])
def test_unknown_path_is_a_404(client, path):
    """The 404 of an unknown path is JSON and repeats the path."""
    assert error(client.get(path), 404) == f"there is nothing at {path}"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        pytest.param("GET", "/predict", {"POST", "OPTIONS"}, id="GET /predict"),
        pytest.param("POST", "/healthz", {"GET", "HEAD", "OPTIONS"}, id="POST health"),
    ],
)
def test_wrong_method_is_a_405_with_allow(client, method, path, allowed):
    """The 405 lists the methods that the route takes."""
    response = client.open(path, method=method)
    assert f"{path} takes no {method}" in error(response, 405)
    assert set(response.headers["Allow"].split(", ")) == allowed


def test_body_over_limit_is_a_413(serve):
    """A body above BASKET_MAX_BODY_BYTES is a 413, one at the limit is read."""
    body = _body([ROW])
    client = serve(max_body_bytes=len(body))
    assert client.post("/predict", data=body).status_code == 200
    response = client.post("/predict", data=body + b" ")
    assert error(response, 413) == f"the body is larger than {len(body)} bytes"


def test_more_rows_than_the_queue_holds_are_a_413(serve):
    """A request that never fits into the queue is a 413, not a 503."""
    client = serve(max_batch_size=1, max_enqueued_batches=2)
    assert "3 rows in one request" in error(_predict(client, *[ROW] * 3), 413)


def test_predict_without_a_default_model_is_a_404(serve, models):
    """With several models and no default, /predict is a 404, and readiness a 200."""
    models("apples")
    models("pears")
    client = serve()
    assert error(_predict(client, ROW), 404) == (
        "there are several models, and none is the default: apples, pears; "
        "set BASKET_DEFAULT_MODEL or ask /v1/models/NAME:predict"
    )
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json["default_model"] is None
    asked = client.post("/v1/models/pears:predict", data=_body([ROW]))
    assert asked.status_code == 200


# API keys.


@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param(None, id="none"),
        pytest.param("", id="empty"),
        pytest.param("Bearer", id="no key"),
        pytest.param("Bearer three", id="another key"),
        pytest.param("Bearer on", id="the beginning of a key"),
        pytest.param("Bearer one two", id="both keys"),
        pytest.param("Basic one", id="another scheme"),
        pytest.param("one", id="no scheme"),
        pytest.param("Bearer öne", id="not ASCII"),
    ],
)
@pytest.mark.parametrize("path", ["/predict", "/metrics", "/nothing"])
def test_request_without_a_known_api_key_is_a_401(keyed_client, path, authorization):
    """With keys set, a request without one is a 401 with WWW-Authenticate."""
    headers = {} if authorization is None else {"Authorization": authorization}
    response = keyed_client.post(path, headers=headers)
    text = error(response, 401)
    assert text == "this server wants Authorization: Bearer KEY"
    assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "authorization", ["Bearer one", "Bearer two", "bearer one", "BEARER  two"]
)
def test_request_with_an_api_key_is_answered(keyed_client, authorization):
    """Each key is accepted, with the scheme in any case."""
    response = _predict(keyed_client, ROW, headers={"Authorization": authorization})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("headers", "sharer"),
    [
        ({"Authorization": "Bearer one"}, "one"),
        ({"Authorization": "bEARER   one ", "X-Client-Id": "till"}, "one"),
        ({"X-Client-Id": "till"}, "till"),
        ({"Authorization": "one", "X-Client-Id": "till"}, "till"),
        ({}, "127.0.0.1"),
    ],
)
def test_fair_queueing_key_is_api_key_name_or_address(
    serve, submitted, headers, sharer
):
    """An API key counts before X-Client-Id, and that before the address."""
    _predict(serve(), ROW, headers=headers)
    assert [job.client for job in submitted] == [sharer]


@pytest.mark.parametrize("given", ["first", "second", "third", ""])
def test_api_keys_are_compared_in_constant_time(serve, monkeypatch, given):
    """Every key is compared with hmac.compare_digest, found or not."""
    compared = []
    compare = hmac.compare_digest

    def note(one, other):
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", note)
    client = serve(api_keys=("first", "second"))
    client.get("/metrics", headers={"Authorization": f"Bearer {given}"})
    assert compared == [(given.encode(), b"first"), (given.encode(), b"second")]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_api_key(serve, path):
    """Health and readiness are answered without a key."""
    assert serve(api_keys=("one",)).get(path).status_code == 200


# Server errors, admission control and readiness.


@pytest.mark.parametrize(
    ("raised", "status", "expected"),
    [
        (ValueError("secret"), 500, "the model failed (ValueError)"),
        (OutOfDeviceMemory("a batch of 1 rows does not fit"), 507, "does not fit"),
    ],
)
def test_failing_row_is_a_500_or_507(serve, use_engine, raised, status, expected):
    """The error of a row hides the model's text, and the next row is served."""
    use_engine(Raises(raised))
    client = serve()
    for _ in range(2):
        text = error(_predict(client, [Raises.poison] * 3), status)
        assert text == expected or (status == 507 and expected in text)
        assert _predict(client, ROW).json == {"predictions": [[1]]}


def test_unexpected_error_is_a_500_with_a_fixed_text(serve, use_engine, caplog):
    """An unexpected error is a 500 with one fixed text, and is logged."""

    class NoText:
        def decode(self):
            raise RuntimeError("secret")

    engine = use_engine(Echo())
    signature = engine.signatures[DEFAULT_SIGNATURE]
    output = TensorSpec("output", np.dtype("O"), ())
    engine.signatures = {DEFAULT_SIGNATURE: replace(signature, outputs=(output,))}
    engine.run = lambda batch, _: {
        "output": np.array([NoText()] * len(batch["input"]), object)
    }
    text = error(_predict(serve(), ROW), 500)
    assert text == "internal error; the server's log has more"
    assert "secret" in caplog.text


def test_open_circuit_breaker_is_a_503(serve, use_engine):
    """After errors on every row the circuit breaker opens: 503 with Retry-After."""
    engine = use_engine(Fails(ValueError("broken")))
    client = serve()
    engine.sizes = (1,)
    for _ in range(3):
        assert error(_predict(client, ROW), 500) == "the model failed (ValueError)"
    response = _predict(client, ROW)
    assert error(response, 503) == "the model fails on everything at present"
    assert int(response.headers["Retry-After"]) >= 1


def test_batch_out_of_device_memory_is_split(serve, models):
    """A batch that the device has no memory for is run in parts."""
    models("echo", memory_rows=1)
    response = _predict(serve(), *[ROW] * 5)
    assert response.json == {"predictions": [[1, 2]] * 5}
    assert response.headers["X-Batch-Size"] == "1"


def test_admission_control_full_queue_is_a_503(serve):
    """Rows beyond the bound of the queue are a 503 with Retry-After at once."""
    client = serve(
        max_batch_size=4, max_enqueued_batches=1, batch_timeout_micros=AN_HOUR
    )
    # These wait for a full batch.
    other = threading.Thread(target=_predict, args=(client, ROW, ROW, ROW))
    other.start()
    full = b'rows{model="echo",version="7"} 3.0'
    wait_until(lambda: full in client.get("/metrics").data, 10)
    response = _predict(client, ROW, ROW)
    text = error(response, 503)
    assert text == "the queue holds 3 of at most 4 rows, and 2 more do not fit"
    assert int(response.headers["Retry-After"]) >= 1
    assert _predict(client, ROW).status_code == 200
    other.join()


def test_request_during_shutdown_is_a_503(serve):
    """After the close a request is a 503 with Retry-After."""
    client = serve()
    client.application.wsgi_app.server.loader.close(10)
    response = _predict(client, ROW)
    assert error(response, 503) == "the server is stopping"
    assert int(response.headers["Retry-After"]) >= 1


def test_loading_model_is_a_503_until_warm(serve, use_engine):
    """During the load the server is live but not ready, and /predict is a 503."""
    engine = use_engine(Blocks())
    client = serve(wait=False)
    engine.wait_until_started()
    assert client.get("/healthz").status_code == 200
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json["error"] == "echo: is loading"
    response = _predict(client, ROW)
    assert error(response, 503) == "model 'echo': is loading"
    assert int(response.headers["Retry-After"]) >= 1
    engine.unblock()
    assert client.application.wsgi_app.server.loader.wait(10)
    echo = {
        "version": "7",
        "inputs": [{"name": "input", "dtype": "float32", "shape": [None]}],
    }
    assert client.get("/readyz").json == {
        "status": "ready",
        "default_model": "echo",
        "models": {"echo": echo},
    }
    assert _predict(client, ROW).status_code == 200


def test_failed_model_is_named_by_readyz(serve, models):
    """Readiness names the model that failed to load, and a metric counts problems."""
    models("digits")
    models("pears", outputs=99)
    client = serve()
    response = client.get("/readyz")
    assert response.status_code == 200
    assert list(response.json["models"]) == ["digits"]
    assert list(response.json["not_ready"]) == ["pears"]
    assert response.json["not_ready"]["pears"].startswith("simulated.json: ")
    assert response.json["problems"].keys() == {"pears"}
    strict = serve(ready="all").get("/readyz")
    assert strict.status_code == 503
    assert strict.json["error"].startswith("pears: simulated.json: ")
    assert strict.json["not_ready"] == response.json["not_ready"]
    assert _predict(client, ROW).status_code == 200
    text = client.get("/metrics").text
    assert [each for each in text.splitlines() if each.startswith("basket_model")] == [
        'basket_model_problems{model="digits"} 0.0',
        'basket_model_problems{model="pears"} 1.0',
        'basket_model_versions{model="digits",state="AVAILABLE"} 1.0',
        'basket_model_versions{model="pears",state="END"} 1.0',
    ]


def test_health_without_a_model(tmp_path):
    """A server that has loaded no model is live and not ready."""
    client = create_app(Settings(model_dir=tmp_path)).flask.test_client()
    assert client.get("/healthz").json == {"status": "alive"}
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json["error"] == "digits: is the default model and not there"


# Deadlines.


@pytest.mark.parametrize(("limit_ms", "status"), [(30_000, 200), (50, 504)])
def test_deadline_without_batching(serve, use_engine, limit_ms, status):
    """With batching off, a response after the deadline is a 504."""

    class Slow(Echo):
        def run(self, batch, signature_name):
            if 13 in batch["input"]:
                time.sleep(0.1)
            return super().run(batch, signature_name)

    use_engine(Slow())
    client = serve(batching=False, request_timeout_ms=limit_ms)
    assert _predict(client, [13]).status_code == status


@pytest.mark.parametrize(
    ("limit_ms", "headers"),
    [
        pytest.param(60_000, {"X-Request-Timeout-Ms": "99"}, id="the request's own"),
        pytest.param(99, {}, id="the server's"),
        pytest.param(99, {"X-Request-Timeout-Ms": "60000"}, id="the shorter one"),
    ],
)
def test_request_past_its_deadline_is_a_504(serve, submitted, limit_ms, headers):
    """The deadline is the shorter timeout, counted from arrival."""
    client = serve(batch_timeout_micros=AN_HOUR, request_timeout_ms=limit_ms)
    text = error(_predict(client, ROW, headers=headers), 504)
    assert "the request's deadline" in text
    (job,) = submitted
    assert job.deadline - job.owner.arrived_at == pytest.approx(0.099)


@pytest.mark.parametrize("given", ["60000", "1" + "0" * 30, "0" * 30 + "60000"])
def test_long_timeout_is_accepted(client, given):
    """X-Request-Timeout-Ms may be longer than the limit, and of many digits."""
    response = _predict(client, ROW, headers={"X-Request-Timeout-Ms": given})
    assert response.status_code == 200


@pytest.mark.parametrize("given", ["", "0", "00", "-1", "1.5", "soon", "1e3", "²"])
def test_malformed_timeout_is_a_400(client, given):
    """A timeout that is not a whole number of at least 1 ms is a 400."""
    response = _predict(client, ROW, headers={"X-Request-Timeout-Ms": given})
    wanted = "X-Request-Timeout-Ms: expected a whole number of ms, 1 or more, given "
    assert error(response, 400).startswith(wanted)


# Metrics.

ECHO = (("model", "echo"), ("version", "7"))
NO_MODEL = (("model", ""), ("version", ""))


def _series(client):
    """Return all series of Basket in /metrics except times and buckets."""
    text = client.get("/metrics", headers={"Authorization": "Bearer key"}).text
    # Most lines are of buckets.
    lines = text.splitlines(keepends=True)
    text = "".join(line for line in lines if "_bucket{" not in line)
    return {
        (sample.name.removeprefix("basket_"), *sorted(sample.labels.items())): value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if (value := sample.value) and sample.name.startswith("basket_")
        if not sample.name.endswith(("_created", "seconds_sum", "seconds_total"))
    }


@pytest.fixture(name="counted")
def _counted(serve):
    """Post to a new server; return the status, and by how much the series grew."""

    def counted(settings=None, **request):
        client = serve(**settings or {})
        before = _series(client)
        response = client.post("/predict", **request)
        # Its queue may still hold the rows of a request that is late.
        client.application.wsgi_app.server.loader.close(10)
        grown = {
            key: value - before.get(key, 0) for key, value in _series(client).items()
        }
        return response.status_code, {
            key: value for key, value in grown.items() if value
        }

    return counted


def _requests(status, labels):
    (model, version), status = labels, ("status", str(status))
    return {
        ("requests_total", model, status, version): 1,
        ("request_seconds_count", *labels): 1,
    }


@pytest.mark.parametrize("batching", [True, False], ids=["batched", "unbatched"])
def test_request_is_counted_once(counted, batching):
    """A response is in each series once, and its batch with its rows."""
    status, grown = counted({"batching": batching}, data=_body([ROW, ROW]))
    assert status == 200
    assert grown == {
        **_requests(200, ECHO),
        ("queue_seconds_count", *ECHO): 1,
        ("infer_seconds_count", *ECHO): 1,
        ("batch_rows_count", *ECHO): 1,
        ("batch_rows_sum", *ECHO): 2,
    }


ROWS = {"data": _body([ROW, ROW])}
LATE = {"batch_timeout_micros": AN_HOUR, "request_timeout_ms": 50}
TINY_QUEUE = {"max_batch_size": 1, "max_enqueued_batches": 1}
BAD_TIMEOUT = {"headers": {"X-Request-Timeout-Ms": "0"}}


@pytest.mark.parametrize(
    ("status", "reason", "labels", "settings", "request_"),
    [
        (400, "bad_input", ECHO, {}, {"data": b"{"}),
        (400, "bad_input", NO_MODEL, {}, BAD_TIMEOUT),
        (401, "unauthorized", NO_MODEL, {"api_keys": ("key",)}, {}),
        (404, "unknown_model", NO_MODEL, {"default_model": "pears"}, {}),
        (413, "too_large", NO_MODEL, {"max_body_bytes": 1}, ROWS),
        (413, "too_large", ECHO, TINY_QUEUE, ROWS),
        (504, "late", ECHO, LATE, ROWS),
    ],
)
def test_rejected_request_is_counted_with_its_reason(
    counted, status, reason, labels, settings, request_
):
    """Only a job past its deadline is in the queue histogram too, and in no batch."""
    expected = {**_requests(status, labels), ("rejected_total", ("reason", reason)): 1}
    if reason == "late":
        expected["queue_seconds_count", *ECHO] = 1
    assert counted(settings, **request_) == (status, expected)


@pytest.mark.parametrize("here", [True, False], ids=["here", "model process"])
def test_refused_job_is_not_in_the_queue_histogram(counted, monkeypatch, here):
    """It did not wait, wherever its queue is."""

    def refuse(batcher, job):
        del batcher
        if here:
            raise QueueFull("no room")
        job.was_refused = True
        job.fail(QueueFull("no room"))

    monkeypatch.setattr(Batcher, "submit", refuse)
    assert counted(data=_body([ROW])) == (
        503,
        {**_requests(503, ECHO), ("rejected_total", ("reason", "queue_full")): 1},
    )


def test_failed_batch_is_counted(counted, use_engine):
    """A batch in which the model raises is counted like any other."""
    use_engine(Raises(ValueError("poison")))
    status, grown = counted(data=_body([[Raises.poison] * 3]))
    assert status == 500
    assert grown == {
        **_requests(500, ECHO),
        ("rejected_total", ("reason", "model_failed")): 1,
        ("queue_seconds_count", *ECHO): 1,
        ("infer_seconds_count", *ECHO): 1,
        ("batch_rows_count", *ECHO): 1,
        ("batch_rows_sum", *ECHO): 1,
    }


def test_only_predictions_are_counted(client):
    """Health, metrics, unknown paths and OPTIONS change no series."""
    before = _series(client)
    for path in ("/healthz", "/readyz", "/metrics", "/nothing"):
        client.get(path)
    assert client.options("/predict").status_code == 200
    assert _series(client) == before
