"""V1 on a real server: raw paths, a SavedModel, gzip, and keep-alive after errors."""

import base64
import gzip
import http.client
import json
import socket

import pytest

from testing.clients import in_parallel
from testing.server import Reply, serving, simulated_models
from tests.support.api_page import make_models

ECHO = {"base_ms": 0, "input_shape": [3], "outputs": 2}
PRICES = {"prices": [1, 2.5, 3], "customer": "Ann"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serve till of docs/api.md, two versions of an echo, and a broken model."""
    folder = tmp_path_factory.mktemp("v1")
    models = make_models(folder)
    simulated_models(folder, secret=ECHO)
    simulated_models(folder / "models", **{"echo room": ECHO, "broken": {}})
    echo = folder / "models" / "echo room"
    (echo / "2").mkdir()
    (echo / "2" / "simulated.json").write_text(json.dumps(ECHO))
    (echo / "basket.toml").write_text("[labels]\nfirst = 1\n")
    (folder / "models" / "broken" / "1" / "simulated.json").write_text("{")
    limits = {"max_body_bytes": "10000", "default_model": "echo room"}
    with serving("--threads=16", ready=False, model_dir=models, **limits) as server:
        server.wait_until_loaded()
        yield server


def _post(server, path, value, **headers):
    return server.request("POST", path, json.dumps(value).encode(), headers)


def _raw(server, request: bytes) -> Reply:
    """Send bytes that no client library would send, and return the response."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return Reply(response.status, response.headers, response.read())


def test_saved_model_in_rows_and_columns(server):
    """Numbers and strings reach a SavedModel in rows and in columns."""
    rows = [PRICES, {"prices": [0.5, 0, 0], "customer": {"b64": "Qm9i"}}]
    response = _post(server, "/v1/models/till:predict", {"instances": rows})
    assert response.json() == {
        "predictions": [
            {"receipt": "Ann pays 6.50", "total": 6.5},
            {"receipt": "Bob pays 0.50", "total": 0.5},
        ]
    }
    columns = {"prices": [[1, 2.5, 3]], "customer": ["Ann"]}
    response = _post(server, "/v1/models/till:predict", {"inputs": columns})
    assert response.json() == {
        "outputs": {"receipt": ["Ann pays 6.50"], "total": [6.5]}
    }
    response = _post(server, "/predict", {"inputs": {"input": [[1, 2, 3], [4, 5, 6]]}})
    assert response.json() == {"outputs": [[1, 2], [4, 5]]}


def test_base64_round_trip_of_all_bytes(server):
    """Any bytes go through a model unchanged."""
    every = {"b64": base64.b64encode(bytes(range(256))).decode()}
    asked = {"signature_name": "pack", "instances": [every]}
    (answer,) = _post(server, "/v1/models/till:predict", asked).json()["predictions"]
    assert base64.b64decode(answer["b64"]) == bytes(range(256)) * 2


def test_concurrent_requests_of_two_signatures(server):
    """Concurrent rows of two signatures and both forms get their own answers."""

    def work(place):
        goods = {"b64": "QUJD"} if place % 2 else "ABC"
        for number in range(15):
            pack = {"signature_name": "pack", "inputs": [goods] * (number % 3 + 1)}
            response = _post(server, "/v1/models/till:predict", pack)
            assert response.json() == {
                "outputs": [{"b64": "QUJDQUJD"}] * (number % 3 + 1)
            }
            row = {"prices": [place, number, 0], "customer": "Ann"}
            response = _post(server, "/v1/models/till:predict", {"instances": [row]})
            (prediction,) = response.json()["predictions"]
            assert prediction["total"] == place + number

    in_parallel(work, 12)


@pytest.mark.parametrize(
    ("which", "version"),
    [("", "2"), ("/versions/1", "1"), ("/labels/first", "1"), ("/versions/2", "2")],
)
def test_predict_by_version_or_label(server, which, version):
    """A version is chosen by number or label; the default is the newest."""
    rows = {"instances": [[1, 2, 3]]}
    response = _post(server, f"/v1/models/echo%20room{which}:predict", rows)
    assert response.json() == {"predictions": [[1, 2]]}
    assert response.headers["X-Model-Version"] == version
    response = server.request("GET", f"/v1/models/echo%20room{which}/metadata")
    assert response.json()["model_spec"]["version"] == version


@pytest.mark.parametrize(
    "name",
    [
        *("..%2Fsecret", "%2E%2E%2Fsecret", "..%5Csecret", "%2Fetc%2Fpasswd", "."),
        *("till%2F1", "till%2F..%2Ftill", "till%00", "%2E%2E", "till%2Fbasket.toml"),
    ],
)
def test_model_name_reaches_no_file(server, name):
    """A name is only looked up, whatever it would be as a path."""
    rows = {"instances": [[1, 2, 3]]}
    for response in (
        _post(server, f"/v1/models/{name}:predict", rows),
        server.request("GET", f"/v1/models/{name}"),
        server.request("GET", f"/v1/models/{name}/metadata"),
    ):
        assert response.status == 404
        assert list(response.json()) == ["error"]


@pytest.mark.parametrize(
    "path", ["/v1/models/../secret", "/v1/../v1/models", "/v1/models//till", "/v1/./"]
)
def test_dots_and_slashes_in_a_path_are_not_resolved(server, path):
    """A path with dots or empty segments is malformed."""
    response = server.request("GET", path)
    assert response.status == 400
    assert response.json()["error"] == f"Malformed request: GET {path}"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://x.localhost:9/v1/models/echo%20room?x=/v1/", 200),
        (b"/v1/models/echo%20room", 200),
        ("/v1/models/übung".encode(), 400),
        (b"/v1/models/%C3%BCbung", 404),
        (b"/v1/models/%ff%fe", 404),
        (b"/v1/models/" + b"9" * 3000, 404),
    ],
    ids=["with a host", "plain", "UTF-8", "encoded", "not UTF-8", "long"],
)
def test_request_target_in_absolute_form_or_not_ascii(server, target, status):
    """A target with a host is accepted, one with bytes beyond ASCII malformed."""
    response = _raw(server, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert response.status == status
    assert response.headers["Content-Type"] == "application/json"


def test_status_of_a_model_that_failed_to_load(server):
    """The status has the reason without a path, and predict is a 503."""
    response = server.request("GET", "/v1/models/broken")
    assert response.status == 200
    answer = response.json()
    assert answer["ready"] is False
    (version,) = answer["model_version_status"]
    assert version["state"] == "END"
    assert version["status"]["error_code"] == "INTERNAL"
    assert version["status"]["error_message"].startswith("simulated.json: ")
    assert "/" not in version["status"]["error_message"]
    response = _post(server, "/v1/models/broken:predict", {"instances": [[1]]})
    assert response.status == 503
    assert int(response.headers["Retry-After"]) >= 1


def test_gzip_body(server):
    """A gzip body is decompressed, and a decompression bomb is a 413."""
    body = gzip.compress(json.dumps({"instances": [PRICES]}).encode())
    headers = {"Content-Encoding": "gzip"}
    response = server.request("POST", "/v1/models/till:predict", body, headers)
    assert response.json()["predictions"][0]["total"] == 6.5
    bomb = gzip.compress(bytes(5_000_000))
    assert len(bomb) < 10_000
    response = server.request("POST", "/v1/models/till:predict", bomb, headers)
    assert response.status == 413


def test_keep_alive_after_an_error(server):
    """The connection stays open after an error response."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for method, path, status in (
        ("POST", "/v1/models/till:predict", 400),
        ("PUT", "/v1/models/till", 400),
        ("POST", "/v1/models/nobody:predict", 404),
        ("GET", "/v1/models/till", 200),
    ):
        connection.request(method, path, b'{"instances": 1}')
        response = connection.getresponse()
        response.read()
        assert response.status == status
        assert connection.sock is not None, path
    connection.close()
