"""The contract over HTTP: statuses, headers, texts, and what is counted."""

import io
import itertools
import json
import re
import threading
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app import create_app
from app.api import access
from app.batching.batcher import Batcher
from app.batching.executor import Executor
from app.errors import OutOfDeviceMemory, QueueFull
from app.settings import Settings
from testing.server import wait_until
from tests.support.clocks import standing_clock
from tests.support.engines import Blocks, Echo, Fails, Raises
from tests.support.exchanges import error, npy_of

NPY = "application/x-npy"
AN_HOUR = 3_600_000_000
ROW = [1.0, 2.0, 3.0]


@pytest.fixture(name="models")
def _models(tmp_path):
    """Write a simulated model that takes no time, as version 7."""

    def write(name, **simulation):
        folder = tmp_path / name / "7"
        folder.mkdir(parents=True)
        simulation = {"base_ms": 0, "input_shape": [3], "outputs": 2} | simulation
        (folder / "simulated.json").write_text(json.dumps(simulation))
        return tmp_path

    return write


@pytest.fixture(name="serve")
def _serve(tmp_path, models, client_of):
    """Start an application and give its client; one model, unless there are some."""

    def serve(**settings):
        if not any(tmp_path.iterdir()):
            models("echo")
        return client_of(model_dir=tmp_path, **settings)

    return serve


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


# A right answer.


def test_rows_come_back_as_predictions(serve):
    """Each row gets its prediction, in order."""
    reply = _predict(serve(), [1, 2, 3], [4, 5, 6])
    assert reply.status_code == 200
    assert reply.mimetype == "application/json"
    assert reply.json == {"predictions": [[1, 2], [4, 5]]}


@pytest.mark.parametrize("batching", [True, False], ids=["batched", "unbatched"])
def test_an_answer_carries_its_version_batch_and_times(serve, batching):
    """The headers tell the version, the rows of the batch, and four times in ms."""
    reply = _predict(serve(batching=batching), ROW, ROW)
    assert reply.headers["X-Model-Version"] == "7"
    assert reply.headers["X-Batch-Size"] == "2"
    duration = r";dur=\d+\.\d{3}"
    names = ("decode", "queue", "infer", "encode")
    wanted = ", ".join(name + duration for name in names)
    assert re.fullmatch(wanted, reply.headers["Server-Timing"])


def test_times_are_milliseconds(serve, monkeypatch):
    """A batch that takes a second is 1000 in Server-Timing."""
    clock = partial(next, itertools.count(1000))
    monkeypatch.setattr(
        "app.repository.opener.Executor", partial(Executor, clock=clock)
    )
    timing = _predict(serve(), ROW).headers["Server-Timing"]
    assert ", infer;dur=1000.000, " in timing


def test_requests_that_come_together_share_a_batch(serve):
    """Two clients' rows that fill a batch are answered from one batch of two."""
    client = serve(max_batch_size=2, batch_timeout_micros=AN_HOUR)
    replies = {}

    def post(value):
        replies[value] = _predict(client.application.test_client(), [value] * 3)

    threads = [threading.Thread(target=post, args=(value,)) for value in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for value, reply in replies.items():
        assert reply.json == {"predictions": [[value, value]]}
        assert reply.headers["X-Batch-Size"] == "2"


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", None])
def test_a_body_is_json_unless_it_says_otherwise(serve, content_type):
    """A body that is not declared as .npy is read as JSON."""
    body = json.dumps({"instances": [ROW]})
    reply = serve().post("/predict", data=body, content_type=content_type)
    assert reply.json == {"predictions": [[1, 2]]}


def test_npy_in_json_out(serve):
    """Rows in .npy are answered as JSON where nothing else is asked for."""
    body = npy_of(np.array([ROW], np.float32))
    reply = serve().post("/predict", data=body, content_type=NPY)
    assert reply.mimetype == "application/json"
    assert reply.json == {"predictions": [[1, 2]]}


@pytest.mark.parametrize(
    ("accept", "mimetype"),
    [
        ("Application/X-NPY", NPY),
        ("application/json;q=0.9, application/x-npy; q=0.5", NPY),
        ("application/x-npy;v=1", NPY),
        ("application/x-npy;q=0", "application/json"),
        ("application/x-npy; Q=0.0, */*", "application/json"),
        ("application/x-npyz, */*", "application/json"),
    ],
)
def test_accept_is_read_as_http_has_it(serve, accept, mimetype):
    """A media type counts in any case, unless q=0 refuses it."""
    reply = _predict(serve(), ROW, headers={"Accept": accept})
    assert (reply.status_code, reply.mimetype) == (200, mimetype)


@pytest.mark.parametrize("content_type", ["application/json", NPY])
def test_npy_out(serve, content_type):
    """Predictions come as .npy where Accept asks for it, whatever came in."""
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    body = npy_of(rows) if content_type == NPY else _body(rows.tolist())
    reply = serve().post(
        "/predict", data=body, content_type=content_type, headers={"Accept": NPY}
    )
    assert reply.content_type == NPY
    assert reply.headers["X-Batch-Size"] == "2"
    answer = np.load(io.BytesIO(reply.data))
    assert answer.dtype == np.float32
    assert answer.tolist() == [[0, 1], [3, 4]]


def _body(instances):
    return json.dumps({"instances": instances}).encode()


# What a client can do wrong.


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
    ],
)
def test_bad_input_is_a_400_that_says_where(serve, body, text):
    """A body that the model can't take is a 400 that says what is wrong and where."""
    assert text in error(serve().post("/predict", data=body), 400)


def test_bad_npy_is_a_400(serve):
    """A body that claims to be .npy and is not is a 400."""
    reply = serve().post("/predict", data=b"\x93NUMPY", content_type=NPY)
    assert "not a .npy array" in error(reply, 400)


def test_npy_is_for_the_default_signature(serve, use_engine):
    """A model without the signature serving_default takes no .npy: a 400."""
    engine = use_engine(Echo())
    engine.signatures = {"other": engine.signatures["serving_default"]}
    body = npy_of(np.array([ROW], np.float32))
    reply = serve().post("/predict", data=body, content_type=NPY)
    assert "serving_default" in error(reply, 400)


def test_readyz_describes_what_predict_serves(serve, use_engine):
    """Of several signatures it shows the default one, wherever the model has it."""
    engine = use_engine(Echo())
    default = engine.signatures["serving_default"]
    (spec,) = default.inputs
    other = replace(default, inputs=(replace(spec, shape=(7,)),))
    engine.signatures = {"other": other, **engine.signatures}
    (field,) = serve().get("/readyz").json["models"]["echo"]["inputs"]
    assert field["shape"] == [None]


@pytest.mark.parametrize("path", ["/v1", "/predict/", "/predict/x", "/v9"])
def test_an_unknown_path_is_a_404_in_json(serve, path):
    """Where there is nothing, the 404 is JSON and names the path."""
    assert error(serve().get(path), 404) == f"there is nothing at {path}"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        pytest.param("GET", "/predict", {"POST", "OPTIONS"}, id="GET /predict"),
        pytest.param("POST", "/healthz", {"GET", "HEAD", "OPTIONS"}, id="POST health"),
    ],
)
def test_a_wrong_method_is_a_405_with_allow(serve, method, path, allowed):
    """A method that a route does not take is a 405 that lists those it takes."""
    reply = serve().open(path, method=method)
    assert f"{path} takes no {method}" in error(reply, 405)
    assert set(reply.headers["Allow"].split(", ")) == allowed


def test_a_body_beyond_the_limit_is_a_413(serve):
    """A body larger than BASKET_MAX_BODY_BYTES is a 413, one as large is read."""
    body = _body([ROW])
    client = serve(max_body_bytes=len(body))
    assert client.post("/predict", data=body).status_code == 200
    reply = client.post("/predict", data=body + b" ")
    assert error(reply, 413) == f"the body is larger than {len(body)} bytes"


def test_more_rows_than_the_queue_holds_are_a_413(serve):
    """A request that could never fit into the queue is a 413 and not a 503."""
    client = serve(max_batch_size=1, max_enqueued_batches=2)
    assert "3 rows in one request" in error(_predict(client, *[ROW] * 3), 413)


def test_without_a_default_model_predict_is_a_404(serve, models):
    """Of several models none is the default, as a 404 says, and the server is ready."""
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


# Keys.


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
def test_without_a_key_there_is_a_401(serve, path, authorization):
    """Once keys are set a request without one is a 401 that asks for it."""
    headers = {} if authorization is None else {"Authorization": authorization}
    reply = serve(api_keys=("one", "two")).post(path, headers=headers)
    text = error(reply, 401)
    assert text == "this server wants Authorization: Bearer KEY"
    assert reply.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "authorization", ["Bearer one", "Bearer two", "bearer one", "BEARER  two"]
)
def test_with_a_key_there_is_an_answer(serve, authorization):
    """Each of the keys opens the door, however the scheme is written."""
    client = serve(api_keys=("one", "two"))
    reply = _predict(client, ROW, headers={"Authorization": authorization})
    assert reply.status_code == 200


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
def test_who_shares(serve, submitted, headers, sharer):
    """A key is one client, however its header is written; then names and addresses."""
    _predict(serve(), ROW, headers=headers)
    assert [job.client for job in submitted] == [sharer]


@pytest.mark.parametrize("given", ["first", "second", "third", ""])
def test_all_keys_are_compared_in_constant_time(serve, monkeypatch, given):
    """The time of a 401 does not tell how much of a key was right, or which key."""
    compared = []
    compare = access.hmac.compare_digest

    def note(one, other):
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(access.hmac, "compare_digest", note)
    client = serve(api_keys=("first", "second"))
    client.get("/metrics", headers={"Authorization": f"Bearer {given}"})
    assert compared == [(given.encode(), b"first"), (given.encode(), b"second")]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_wants_no_key(serve, path):
    """Health and readiness are answered without a key."""
    assert serve(api_keys=("one",)).get(path).status_code == 200


# What can go wrong here.


def test_a_model_that_fails_is_a_500(serve, use_engine):
    """A model that raises is a 500 without its text, and the next row is served."""
    use_engine(Raises(ValueError("secret")))
    client = serve()
    for _ in range(2):
        text = error(_predict(client, [Raises.poison] * 3), 500)
        assert text == "the model failed (ValueError)"
        assert _predict(client, ROW).json == {"predictions": [[1]]}


def test_a_bug_is_a_500_that_tells_nothing(serve, monkeypatch, caplog):
    """An unexpected error is a 500 with one fixed text, and is in the log."""

    def encode(*_, **__):
        raise RuntimeError("secret")

    monkeypatch.setattr("app.api.predict.rows.encode", encode)
    text = error(_predict(serve(), ROW), 500)
    assert text == "internal error; the server's log has more"
    assert "secret" in caplog.text


def test_a_row_that_does_not_fit_the_device_is_a_507(serve, use_engine):
    """A single row that the device has no memory for is a 507, and others go on."""
    use_engine(Raises(OutOfDeviceMemory("a batch of 1 rows does not fit")))
    client = serve()
    assert "does not fit" in error(_predict(client, [Raises.poison] * 3), 507)
    assert _predict(client, ROW).status_code == 200


def test_a_model_that_breaks_is_a_503(serve, use_engine):
    """A model that fails on all that it could do at first is left alone for a while."""
    engine = use_engine(Fails(ValueError("broken")))
    client = serve()
    engine.sizes = (1,)
    for _ in range(3):
        assert error(_predict(client, ROW), 500) == "the model failed (ValueError)"
    reply = _predict(client, ROW)
    assert error(reply, 503) == "the model fails on everything at present"
    assert int(reply.headers["Retry-After"]) >= 1


def test_rows_that_do_not_fit_together_are_run_apart(serve, models):
    """A batch that the device has no memory for is answered all the same."""
    models("echo", memory_rows=1)
    reply = _predict(serve(), *[ROW] * 5)
    assert reply.json == {"predictions": [[1, 2]] * 5}
    assert reply.headers["X-Batch-Size"] == "1"


def test_a_full_queue_is_a_503_with_retry_after(serve):
    """Rows beyond the queue's bound are refused at once, with a time to come again."""
    client = serve(
        max_batch_size=4, max_enqueued_batches=1, batch_timeout_micros=AN_HOUR
    )
    # These hold for company.
    other = threading.Thread(target=_predict, args=(client, ROW, ROW, ROW))
    other.start()
    full = b'rows{model="echo",version="7"} 3.0'
    wait_until(lambda: full in client.get("/metrics").data, 10)
    reply = _predict(client, ROW, ROW)
    text = error(reply, 503)
    assert text == "the queue holds 3 of at most 4 rows, and 2 more do not fit"
    assert int(reply.headers["Retry-After"]) >= 1
    assert _predict(client, ROW).status_code == 200
    other.join()


def test_a_stopping_server_is_a_503_with_retry_after(serve):
    """After the close a request is refused, with a time to come again."""
    client = serve()
    client.application.extensions["basket"].close(10)
    reply = _predict(client, ROW)
    assert error(reply, 503) == "the server is stopping"
    assert int(reply.headers["Retry-After"]) >= 1


def test_a_loading_model_is_a_503_until_it_is_warm(serve, use_engine):
    """While its model loads a server lives, is not ready, and says to come again."""
    engine = use_engine(Blocks())
    client = serve(wait=False)
    engine.wait_until_started()
    assert client.get("/healthz").status_code == 200
    reply = client.get("/readyz")
    assert reply.status_code == 503
    assert reply.json["error"] == "echo: is loading"
    reply = _predict(client, ROW)
    assert error(reply, 503) == "model 'echo': is loading"
    assert int(reply.headers["Retry-After"]) >= 1
    engine.let_go()
    assert client.application.extensions["basket"].wait(10)
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


def test_a_broken_model_keeps_the_server_from_being_ready(serve, models):
    """Readiness names the model that can't be served and why; the others serve."""
    models("digits")
    models("pears", outputs=99)
    client = serve()
    reply = client.get("/readyz")
    assert reply.status_code == 503
    assert list(reply.json["models"]) == ["digits"]
    assert list(reply.json["not_ready"]) == ["pears"]
    assert reply.json["error"].startswith("pears: simulated.json: ")
    assert _predict(client, ROW).status_code == 200


def test_what_is_wrong_with_a_model_is_a_number_in_the_metrics(serve, models):
    """/metrics counts what is wrong with each model, and those that are well have 0."""
    models("digits")
    models("pears", outputs=99)
    text = serve().get("/metrics").text
    assert [each for each in text.splitlines() if each.startswith("basket_model")] == [
        'basket_model_problems{model="digits"} 0.0',
        'basket_model_problems{model="pears"} 1.0',
    ]


def test_health_needs_no_model(tmp_path):
    """A server that has loaded nothing lives, and is not ready."""
    client = create_app(Settings(model_dir=tmp_path)).test_client()
    assert client.get("/healthz").json == {"status": "alive"}
    reply = client.get("/readyz")
    assert reply.status_code == 503
    assert reply.json["error"] == "digits: is the default model and not there"


# Time.


@pytest.mark.parametrize(("took_s", "status"), [(29, 200), (31, 504)])
def test_without_batching_an_answer_may_be_late(
    serve, use_engine, monkeypatch, took_s, status
):
    """What the model gives only after the 30 s for a request is a 504, not a 200."""

    class Slow(Echo):
        def run(self, batch, signature_name):
            if 13 in batch["input"]:
                later = SimpleNamespace(monotonic=lambda: time.monotonic() + took_s)
                monkeypatch.setattr("app.api.inference.time", later)
            return super().run(batch, signature_name)

    use_engine(Slow())
    assert _predict(serve(batching=False), [13]).status_code == status


@pytest.mark.parametrize(
    ("limit_ms", "headers"),
    [
        pytest.param(60_000, {"X-Request-Timeout-Ms": "99"}, id="the request's own"),
        pytest.param(99, {}, id="the server's"),
        pytest.param(99, {"X-Request-Timeout-Ms": "60000"}, id="the shorter one"),
    ],
)
def test_a_request_that_runs_out_of_time_is_a_504(
    serve, submitted, monkeypatch, limit_ms, headers
):
    """A row not answered within the shorter limit, from arrival on, is a 504."""
    standing_clock(monkeypatch, "app.api.exchange").now = 0.0
    client = serve(batch_timeout_micros=AN_HOUR, request_timeout_ms=limit_ms)
    text = error(_predict(client, ROW, headers=headers), 504)
    assert "the request's deadline" in text
    (job,) = submitted
    assert job.deadline == pytest.approx(0.099)


def test_the_way_back_is_kept_free(serve, submitted, monkeypatch):
    """After an answer that took very long on its way out a quarter of 40 s is kept."""
    client = serve(request_timeout_ms=40_000)
    an_hour_later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600)
    monkeypatch.setattr("app.api.inference.time", an_hour_later)
    for _ in range(2):
        assert _predict(client, ROW).status_code == 200
    assert [job.reserve_s for job in submitted] == [0, 10]


@pytest.mark.parametrize("given", ["60000", "1" + "0" * 30, "0" * 30 + "60000"])
def test_a_generous_timeout_changes_nothing(serve, given):
    """A request with time enough is answered, however much time it gives."""
    reply = _predict(serve(), ROW, headers={"X-Request-Timeout-Ms": given})
    assert reply.status_code == 200


@pytest.mark.parametrize("given", ["", "0", "00", "-1", "1.5", "soon", "1e3", "²"])
def test_a_timeout_that_is_no_number_is_a_400(serve, given):
    """A timeout that is not a whole number of at least 1 ms is a 400 that shows it."""
    reply = _predict(serve(), ROW, headers={"X-Request-Timeout-Ms": given})
    wanted = "X-Request-Timeout-Ms: expected a whole number of ms, 1 or more, given "
    assert error(reply, 400).startswith(wanted)


# What is counted.

ECHO = (("model", "echo"), ("version", "7"))
NO_MODEL = (("model", ""), ("version", ""))


def _series(client):
    """All series of Basket in /metrics, times and buckets left out."""
    text = client.get("/metrics", headers={"Authorization": "Bearer key"}).text
    return {
        (sample.name.removeprefix("basket_"), *sorted(sample.labels.items())): value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if (value := sample.value) and sample.name.startswith("basket_")
        if not sample.name.endswith(
            ("_bucket", "_created", "seconds_sum", "seconds_total")
        )
    }


@pytest.fixture(name="counted")
def _counted(serve):
    """Post to a new server; the status, and by how much the series grew."""

    def counted(settings=None, **request):
        client = serve(**settings or {})
        before = _series(client)
        reply = client.post("/predict", **request)
        # Its queue may still hold the rows of a request that is late.
        client.application.extensions["basket"].close(10)
        grown = {
            key: value - before.get(key, 0) for key, value in _series(client).items()
        }
        return reply.status_code, {key: value for key, value in grown.items() if value}

    return counted


def _requests(status, labels):
    (model, version), status = labels, ("status", str(status))
    return {
        ("requests_total", model, status, version): 1,
        ("request_seconds_count", *labels): 1,
    }


@pytest.mark.parametrize("batching", [True, False], ids=["batched", "unbatched"])
def test_a_request_is_counted(counted, batching):
    """An answer is in all series once, and its batch with its rows."""
    status, grown = counted({"batching": batching}, data=_body([ROW, ROW]))
    assert status == 200
    assert grown == {
        **_requests(200, ECHO),
        ("queue_seconds_count", *ECHO): 1,
        ("infer_seconds_count", *ECHO): 1,
        ("batch_rows_count", *ECHO): 1,
        ("batch_rows_sum", *ECHO): 2,
    }


@pytest.mark.parametrize(
    ("status", "reason", "labels", "settings", "request_"),
    [
        pytest.param(400, "bad_input", ECHO, {}, {"data": b"{"}, id="bad input"),
        pytest.param(
            400,
            "bad_input",
            NO_MODEL,
            {},
            {"headers": {"X-Request-Timeout-Ms": "0"}},
            id="bad timeout",
        ),
        pytest.param(
            401, "unauthorized", NO_MODEL, {"api_keys": ("key",)}, {}, id="no key"
        ),
        pytest.param(
            404,
            "unknown_model",
            NO_MODEL,
            {"default_model": "pears"},
            {},
            id="unknown model",
        ),
        pytest.param(
            413,
            "too_large",
            NO_MODEL,
            {"max_body_bytes": 1},
            {"data": b"{}"},
            id="body",
        ),
    ],
)
def test_a_request_that_reaches_no_queue_is_counted(
    counted, status, reason, labels, settings, request_
):
    """A request that is refused before it is queued is counted with its reason."""
    assert counted(settings, **request_) == (
        status,
        {**_requests(status, labels), ("rejected_total", ("reason", reason)): 1},
    )


def test_a_job_that_never_ran_is_counted(counted):
    """A job that is late before it runs is in the queue's histogram, and no batch's."""
    settings = {"batch_timeout_micros": AN_HOUR, "request_timeout_ms": 50}
    assert counted(settings, data=_body([ROW, ROW])) == (
        504,
        {
            **_requests(504, ECHO),
            ("rejected_total", ("reason", "late")): 1,
            ("queue_seconds_count", *ECHO): 1,
        },
    )


def test_a_job_that_is_not_let_in_has_not_waited(counted):
    """A job with more rows than the queue holds leaves no trace in its histogram."""
    settings = {"max_batch_size": 1, "max_enqueued_batches": 1}
    assert counted(settings, data=_body([ROW, ROW])) == (
        413,
        {**_requests(413, ECHO), ("rejected_total", ("reason", "too_large")): 1},
    )


def test_a_job_that_is_not_let_in_elsewhere_has_not_waited(counted, monkeypatch):
    """A job whose model process refuses it leaves no trace in the queue's histogram."""

    def refuse(batcher, job):
        del batcher
        job.was_refused = True
        job.fail(QueueFull("no room"))

    monkeypatch.setattr(Batcher, "submit", refuse)
    assert counted(data=_body([ROW])) == (
        503,
        {**_requests(503, ECHO), ("rejected_total", ("reason", "queue_full")): 1},
    )


def test_a_question_for_the_methods_is_no_inference_request(serve):
    """OPTIONS on the route of an inference is answered and not counted."""
    client = serve()
    before = _series(client)
    assert client.options("/predict").status_code == 200
    assert _series(client) == before


def test_a_failed_batch_is_counted(counted, use_engine):
    """A batch in which the model raises is counted like one that ran well."""
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


def test_health_and_metrics_are_not_counted(serve):
    """Looking at the server from outside moves none of its series."""
    client = serve()
    before = _series(client)
    for path in ("/healthz", "/readyz", "/metrics", "/nothing"):
        client.get(path)
    assert _series(client) == before
