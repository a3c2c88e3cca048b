"""Bad requests on a real server: a 4xx with the place, and no effect on others."""

import http.client
import json
import socket

import pytest

from testing.clients import Client, in_parallel
from testing.server import serving, simulated_models

QUICK = {"base_ms": 5, "per_row_ms": 0, "input_shape": [2, 2], "outputs": 4}
GOOD = [[1.5, -2.0], [3.0, 4.0]]


@pytest.fixture(
    scope="module",
    params=["--worker-connections=1000", "--worker-class=gthread"],
    ids=["asgi", "wsgi"],
)
def server(request, tmp_path_factory):
    folder = simulated_models(tmp_path_factory.mktemp("models"), quick=QUICK)
    limits = {"max_body_bytes": "100000", "max_batch_size": "16"}
    with serving("--threads=32", request.param, model_dir=folder, **limits) as server:
        yield server


def _instances(*rows):
    return json.dumps({"instances": rows}).encode()


BAD = {
    "empty body": (b"", 400, "The document is empty"),
    "not JSON": (b'{"instances": [', 400, "JSON Parse error"),
    "ragged": (_instances(GOOD, [[1.0], [2.0, 3.0]]), 400, "instances[1][0]"),
    "a string": (_instances([[1.0, 2.0], [3.0, "x"]]), 400, "instances[0][1][1]"),
    "too many rows": (_instances(*[GOOD] * 300), 413, "more than 256 rows"),
    "too many bytes": (_instances(*[GOOD] * 9000), 413, "larger than 100000 bytes"),
}


@pytest.mark.parametrize(("body", "status", "text"), BAD.values(), ids=BAD.keys())
def test_bad_body_is_a_4xx_with_the_reason(server, body, status, text):
    """The JSON error says what is wrong and where."""
    response = server.request("POST", "/predict", body)
    assert response.status == status
    assert response.headers["Content-Type"] == "application/json"
    assert text in response.json()["error"]


def test_script_name_header_is_ignored(server):
    """A client can not set the mount point of the application."""
    response = server.request("GET", "/x/metrics", headers={"SCRIPT_NAME": "/x"})
    assert response.status == 404


def test_bad_requests_do_not_affect_good_ones(server):
    """Good rows are all answered while bad requests come between them."""

    def work(place):
        with Client(server.port) as client:
            for number in range(20):
                row = [[float(place), float(number)], [0.5, -0.5]]
                if place % 2:
                    client.send([row, [[1.0], "bad"]])
                    assert client.receive().status == 400
                else:
                    client.send([row])
                    assert client.receive().json() == {
                        "predictions": [[place, number, 0.5, -0.5]]
                    }

    in_parallel(work, 24)


def test_malformed_http_does_not_affect_other_clients(server):
    """Malformed HTTP is answered or dropped, and the next client is served."""
    for garbage in (b"\x00\xff" * 100, b"POST /predict HTTP/1.1\r\n\r\n", b"{}"):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(garbage)
    assert server.predict([GOOD]).status == 200


def test_body_over_limit_is_refused_by_its_content_length(server):
    """The 413 comes before the client has sent the body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, 10)
    connection.putrequest("POST", "/predict")
    connection.putheader("Content-Length", str(10**9))
    connection.endheaders()
    connection.send(b"[")
    assert connection.getresponse().status == 413
    connection.close()


def test_failed_model_leaves_the_others_serving(tmp_path):
    """/readyz names a model that fails to load, and stays 200 for the others."""
    folder = simulated_models(tmp_path, good=QUICK, broken={"outputs": 0})
    settings = {"model_dir": folder, "default_model": "good"}
    with serving("--threads=2", ready=False, **settings) as server:
        server.wait_until_loaded()
        response = server.request("GET", "/readyz")
        assert response.status == 200
        assert list(response.json()["not_ready"]) == ["broken"]
        assert "simulated.json" in response.json()["not_ready"]["broken"]
        assert str(tmp_path) not in response.body.decode()
        assert server.request("GET", "/healthz").status == 200
        assert server.predict([GOOD]).status == 200
