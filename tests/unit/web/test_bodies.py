"""Request bodies: chunked, truncated, over the limit, late or nested too deeply."""

import errno
import gzip
import io
import itertools
import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.codec import json_text
from testing.server import simulated_models
from tests.support.cases import case
from tests.support.exchanges import error, started_client

ROW = b'{"instances": [[1.0, 2.0, 3.0]]}'
EVENT = {"specversion": "1.0", "id": "1", "source": "x", "type": "y"}
# JSON of up to so many bytes takes no part of the memory budget.
SMALL_BYTES = 1 << 20
V2 = "/v2/models/echo/infer"
VALUES = {"name": "input", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
TENSOR = {"inputs": [VALUES]}


class ChunkError(Exception):
    """As Gunicorn 27 raises for a malformed chunk: neither OSError nor ValueError."""


class Broken(io.RawIOBase):
    """A body of which one piece arrives, and then an error."""

    def __init__(self, error):
        self._pieces = iter([b"["])
        self._error = error

    def readinto(self, buffer):
        for piece in self._pieces:
            buffer[: len(piece)] = piece
            return len(piece)
        raise self._error


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one simulated model."""
    models = tmp_path_factory.mktemp("models")
    echo = {"base_ms": 0, "input_shape": [3], "outputs": 2}
    return Path(simulated_models(models, echo=echo))


@pytest.fixture(scope="module")
def client(folder):
    with started_client(folder) as client:
        yield client


def post(client, stream, path="/predict"):
    """Post a chunked body, as a server passes it: terminated, of unknown length."""
    environ = {"wsgi.input": stream, "wsgi.input_terminated": True}
    return client.post(path, environ_overrides=environ)


@pytest.mark.parametrize(
    ("raised", "status", "text"),
    [
        (TimeoutError(), 408, "the body has not come in time"),
        (
            ConnectionResetError(errno.ECONNRESET, "it is cut off"),
            *(400, "the body can't be read: it is cut off"),
        ),
        (
            OSError("bad chunk " + "x" * 900),
            400,
            "the body can't be read: bad chunk xx",
        ),
        (ValueError("its trailers"), 400, "the body can't be read: its trailers"),
        (ChunkError("its chunks"), 400, "the body can't be read: its chunks"),
    ],
)
@pytest.mark.parametrize("path", ["/predict", V2, "/v2/repository/index"])
def test_malformed_chunked_body_is_a_400_or_408(client, raised, status, text, path):
    """An error of the server's input stream is a 4xx with the reason."""
    response = post(client, Broken(raised), path)
    said = error(response, status)
    assert said.startswith(text)
    assert len(said) < 300


@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 413), (99, 413)])
def test_chunked_body_over_limit_is_a_413(folder, more, status):
    """A chunked body is read up to the limit, and refused beyond it."""
    with started_client(folder, max_body_bytes=len(ROW) + 10) as client:
        response = post(client, io.BytesIO(ROW + b" " * (10 + more)))
        assert response.status_code == status
        assert post(client, Broken(OSError("bad chunk"))).status_code == 400


def test_truncated_body_is_a_400(client):
    """A body that is shorter than its Content-Length is refused."""
    environ = {"wsgi.input": io.BytesIO(b"[1]"), "CONTENT_LENGTH": "9"}
    response = client.post("/predict", environ_overrides=environ)
    assert error(response, 400) == "the body can't be read: 3 bytes of 9 came"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", '{"instances": %s}'),
        ("/predict", '{"instances": [[1, 2, %s]]}'),
        ("/predict", '{"signature_name": %s, "instances": [1]}'),
        (V2, '{"id": %s}'),
        (V2, '{"parameters": {"x": %s}}'),
        (V2, '{"outputs": %s}'),
        (V2, '{"inputs": [{"name": %s}]}'),
        (V2, '{"inputs": [{"name": "input", "datatype": %s}]}'),
        (V2, '{"inputs": [{"name": "input", "datatype": "FP32", "shape": %s}]}'),
        ("/v2/repository/index", '{"ready": %s}'),
        ("/v1/models/echo:predict", json.dumps(EVENT)[:-1] + ', "data": %s}'),
    ],
)
def test_deeply_nested_json_is_a_400(client, path, body):
    """A value that is nested too deeply is refused in a short text."""
    kind = "application/cloudevents+json" if "data" in body else "application/json"
    for depth in (100, 990, 1010, 1023, 1024, 100_000):
        for begin, end in (("[", "]"), ('{"a":', "}")):
            deep = begin * depth + "1" + end * depth
            with case(depth, begin):
                response = client.post(path, data=body % deep, content_type=kind)
                assert len(error(response, 400)) < 300


@pytest.fixture
def memory_taken(monkeypatch):
    """Read JSON that is larger than the memory budget of all, as long as the test."""
    # Each look at the clock is 10 s after the last: nothing waits for long.
    clock = SimpleNamespace(monotonic=itertools.count(0, 10).__next__)
    monkeypatch.setattr("app.codec.memory_budget.time", clock)
    size = 65 << 20
    with json_text.opened(b'"%b"' % (b"x" * size)) as text:
        assert len(text) == size
        yield


def test_large_json_without_memory_budget_is_a_503(client, memory_taken):
    """Small JSON needs no budget, large JSON waits for it; one may take all of it."""
    row = json.loads(ROW)
    for path, mimetype, body in (
        ("/predict", "application/json", row),
        ("/v1/models/echo:predict", "application/json", row),
        (
            "/v1/models/echo:predict",
            "application/cloudevents+json",
            EVENT | {"data": row},
        ),
        (V2, "application/json", TENSOR),
        ("/v2/repository/index", "application/json", {}),
    ):
        with case(path, mimetype):
            small = json.dumps(body).encode().ljust(SMALL_BYTES)
            response = client.post(path, data=small, content_type=mimetype)
            assert response.status_code == 200
            response = client.post(path, data=small + b" ", content_type=mimetype)
            assert error(response, 503) == "too many large JSON bodies at once"


def test_request_to_the_repository_unpacks_to_a_mebibyte_at_most(client):
    """A few bytes for a route that reads a few names do not take a body's memory."""
    blanks = bytes(random.Random(0).choices(b" \n", k=1 << 16)) * 16
    for tail, status in ((b"}", 200), (b" }", 413)):
        # The best compression would take seconds.
        body = gzip.compress(b"{" + blanks[2:] + tail, compresslevel=1)
        response = client.post(
            "/v2/repository/index", data=body, headers={"Content-Encoding": "gzip"}
        )
        assert response.status_code == status


def test_body_limit_holds_for_a_compressed_request_to_the_repository(folder):
    """A lower limit than a mebibyte is the limit."""
    body = gzip.compress(b"{}".ljust(1001))
    with started_client(folder, max_body_bytes=1000) as small:
        response = small.post(
            "/v2/repository/index", data=body, headers={"Content-Encoding": "gzip"}
        )
    assert response.status_code == 413


def test_similar_paths_do_not_redirect(client):
    """A path that is nearly a route is a 404, and the error shortens a long path."""
    for path in ("/v2//models", "/v2/models/", "/predict/"):
        error(client.get(path), 404)
    path = f"/v2/repository/{'x' * 3000}/index"
    assert len(error(client.delete(path), 405)) < 300
