"""nginx in front of Basket with deploy/nginx.conf, the systemd unit, and TLS."""

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from testing.nginx import NGINX, proxy
from testing.pictures import saved
from testing.server import (
    ROOT,
    Reply,
    free_port,
    serving,
    simulated_models,
    wait_until,
)
from tests.support.model_server import ModelServer, Response

with_nginx = pytest.mark.skipif(
    NGINX is None, reason="Debian's package nginx is not installed"
)
with_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed"
)
UNIT = ROOT / "deploy" / "basket.service"
MODELS = {
    "till": {"base_ms": 0, "input_shape": [8, 8, 1], "outputs": 10},
    "slow": {"base_ms": 0, "input_shape": [2], "outputs": 2},
}
# Log the connection and the client of each request.
LOGS = (
    "--access-logfile=-",
    "--access-logformat=[%(r)s] port=%({REMOTE_PORT}e)s client=%({x-client-id}i)s "
    "for=%({x-forwarded-for}i)s from=%(h)s key=%({authorization}i)s",
)
MIB = 1 << 20
SLOW_PATH = "/v1/models/slow:predict"
SLOW_BODY = b'{"instances": [[1, 2]]}'
WAITING = 'basket_queue_rows{model="slow",version="1"}'


def make_models(folder: Path) -> str:
    """Make till, which takes pictures, and slow, where a row waits for 1 s."""
    models = simulated_models(folder, **MODELS)
    (folder / "slow" / "basket.toml").write_text("batch_timeout_micros = 1000000\n")
    for name in ("basket.toml", "classes.json"):
        shutil.copy(ROOT / "models" / "digits" / name, folder / "till" / name)
    return models


@pytest.fixture(scope="module")
def basket(tmp_path_factory):
    models = make_models(tmp_path_factory.mktemp("models"))
    with serving(
        "--threads=4", *LOGS, model_dir=models, default_model="till"
    ) as server:
        yield server


@pytest.fixture(scope="module")
def nginx(basket, tmp_path_factory):
    with proxy(tmp_path_factory.mktemp("nginx"), basket.port) as server:
        yield server


@pytest.fixture
def model_server():
    """Return a function that starts a server with an answer to each request."""
    with contextlib.ExitStack() as running:
        yield lambda answer: running.enter_context(ModelServer(answer).running())


def _port(server: ModelServer) -> int:
    return int(server.url.rpartition(":")[2])


def _raw(port: int, request: bytes) -> Reply:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        return Reply(reply.status, reply.headers, reply.read())


def _is_json_error(reply: Reply) -> bool:
    return reply.headers["Content-Type"] == "application/json" and list(
        reply.json()
    ) == ["error"]


@with_nginx
def test_prediction_through_nginx_is_unchanged(nginx, basket):
    """The response to a prediction has Basket's body and headers."""
    rows = np.arange(64).reshape(1, 8, 8, 1).tolist()
    direct, through = basket.predict(rows), nginx.predict(rows)
    assert (through.status, through.body) == (200, direct.body)
    for name in ("X-Model-Version", "X-Batch-Size", "Content-Type"):
        assert through.headers[name] == direct.headers[name]
    assert "infer;dur=" in through.headers["Server-Timing"]


@with_nginx
def test_large_picture_through_nginx_is_answered(nginx):
    """A picture of several MB gets its class."""
    noise = np.random.default_rng(0).integers(0, 256, (1500, 1500, 3), np.uint8)
    picture = saved(Image.fromarray(noise))
    assert len(picture) > 5 * MIB
    reply = nginx.request("POST", "/predict", picture, {"Content-Type": "image/png"})
    assert reply.status == 200
    assert reply.json()["class_name"]


@with_nginx
def test_stalled_uploads_do_not_delay_others(nginx):
    """A request is answered while more uploads than Basket has threads stall."""
    head = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{"
    uploads = [socket.create_connection(("127.0.0.1", nginx.port)) for _ in range(8)]
    try:
        for upload in uploads:
            upload.sendall(head)
        assert nginx.request("GET", "/readyz", timeout_s=10).status == 200
    finally:
        for upload in uploads:
            upload.close()


@with_nginx
def test_body_above_the_limit_gets_413_from_nginx(nginx):
    """A body of BASKET_MAX_BODY_BYTES reaches Basket, and one byte more is a 413."""
    reply = nginx.request("POST", "/predict", b" " * (64 * MIB))
    assert reply.status == 400
    assert "JSON Parse error" in reply.json()["error"]
    head = (
        f"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: {64 * MIB + 1}\r\n\r\n"
    )
    reply = _raw(nginx.port, head.encode())
    assert reply.status == 413
    assert _is_json_error(reply)


@with_nginx
def test_client_disconnect_behind_nginx_drops_its_rows(nginx, basket):
    """Basket drops the waiting rows when nginx's client disconnects."""
    abandoned = 'basket_rejected_total{reason="abandoned"}'
    before = basket.metric(abandoned)
    length = len(SLOW_BODY)
    head = f"POST {SLOW_PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}"
    with socket.create_connection(("127.0.0.1", nginx.port)) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + SLOW_BODY)
        wait_until(lambda: basket.metric(WAITING) == 1, 60)
    wait_until(lambda: basket.metric(abandoned) == before + 1, 60)


@contextlib.contextmanager
def _pending(nginx, basket) -> Iterator[list[Reply]]:
    """Yield while a slow request waits in Basket; its reply is in the list after."""
    replies: list[Reply] = []
    thread = threading.Thread(
        target=lambda: replies.append(nginx.request("POST", SLOW_PATH, SLOW_BODY))
    )
    thread.start()
    wait_until(lambda: basket.metric(WAITING) == 1, 60)
    yield replies
    thread.join()


def _logged(server, mark: str, count: int = 1) -> list[str]:
    """Return the log lines with a mark, once there are `count`."""

    def lines() -> list[str]:
        return [line for line in server.log.read_text().splitlines() if mark in line]

    wait_until(lambda: len(lines()) == count, 60)
    return lines()


@with_nginx
def test_nginx_reuses_its_connection_to_basket(nginx, basket):
    """Requests of clients with a connection each reach Basket over one connection."""
    for _ in range(20):
        assert nginx.request("GET", "/healthz?kept").status == 200
    lines = _logged(basket, "?kept", 20)
    assert len({re.search(r"port=(\d+)", line)[1] for line in lines}) == 1


@with_nginx
@pytest.mark.parametrize(
    ("sent", "client", "key"),
    [
        ({}, "127.0.0.1", "-"),
        ({"X-Client-Id": "till-5"}, "till-5", "-"),
        ({"Authorization": "Bearer a"}, "-", "Bearer a"),
        ({"X-Client-Id": "till-5", "Authorization": "Bearer a"}, "till-5", "Bearer a"),
    ],
)
def test_nginx_names_clients_without_name_or_key_by_address(
    nginx, basket, sent, client, key
):
    """Names and keys reach Basket; a request with neither gets its address as name."""
    mark = f"?{client}{len(key)}{len(sent)}"
    nginx.request("GET", f"/healthz{mark}", headers=sent)
    (line,) = _logged(basket, mark)
    assert line.endswith(f"client={client} for=127.0.0.1 from=127.0.0.1 key={key}")


@with_nginx
def test_nginx_appends_the_address_to_x_forwarded_for(nginx, basket):
    """The address that nginx saw follows what the client wrote."""
    nginx.request("GET", "/healthz?spoof", headers={"X-Forwarded-For": "1.2.3.4"})
    (line,) = _logged(basket, "?spoof")
    assert "for=1.2.3.4, 127.0.0.1 " in line


@with_nginx
def test_deadline_through_nginx_gets_basket_s_504(nginx):
    """X-Request-Timeout-Ms reaches Basket, and its 504 the client."""
    headers = {"X-Request-Timeout-Ms": "200"}
    reply = nginx.request("POST", SLOW_PATH, SLOW_BODY, headers)
    assert reply.status == 504
    assert "deadline" in reply.json()["error"]


@with_nginx
def test_path_through_nginx_is_unchanged(tmp_path, model_server):
    """Percent signs and double slashes reach the server behind nginx."""
    server = model_server(lambda request: Response.value("here"))
    path = "/v1//models/a%2Fb%20c:predict?x=%41"
    with proxy(tmp_path / "nginx", _port(server)) as nginx:
        assert nginx.request("GET", path).json() == "here"
    assert server.requests[-1].path == path


@with_nginx
def test_http_1_0_request_without_host_is_answered_through_nginx(nginx):
    """A client of nginx may speak HTTP/1.0, which has no Host."""
    assert _raw(nginx.port, b"GET /readyz HTTP/1.0\r\n\r\n").status == 200


@with_nginx
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 40_000 + b"\r\n\r\n", 400),
        (b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET /-/late HTTP/1.1\r\nHost: a\r\n\r\n", 404),
    ],
)
def test_errors_of_nginx_are_json(nginx, request_, status):
    """Nginx refuses bad requests with their status and a JSON error."""
    reply = _raw(nginx.port, request_)
    assert reply.status == status
    assert _is_json_error(reply)


PUBLIC = "basket.example.com"


@with_nginx
@pytest.mark.parametrize(
    ("page", "status"),
    [
        ({}, 200),
        ({"Origin": f"http://{PUBLIC}"}, 200),
        ({"Origin": f"https://{PUBLIC}", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
    ids=str,
)
def test_public_name_reaches_a_loopback_server_through_nginx(nginx, page, status):
    """Clients and pages of nginx's own name are answered, and no page of another."""
    headers = {"Host": PUBLIC, **page}
    assert nginx.request("GET", "/readyz", headers=headers).status == status
    reply = nginx.request("POST", "/predict", b"{}", headers)
    assert reply.status == (400 if status == 200 else 403)
    forged = headers | {"X-Forwarded-Host": "evil.example"}
    assert nginx.request("GET", "/readyz", headers=forged).status == status


@with_nginx
def test_documented_location_for_metrics_refuses_other_addresses(tmp_path, basket):
    """The location of docs/security.md answers 403 as JSON."""
    page = (ROOT / "docs" / "security.md").read_text()
    (location,) = re.findall(r"^location = /metrics .*$", page, re.M)
    added = {"    server_tokens off;\n": f"    server_tokens off;\n    {location}\n"}
    with proxy(tmp_path / "nginx", basket.port, replacing=added) as nginx:
        reply = nginx.request("GET", "/metrics")
        assert reply.status == 403
        assert _is_json_error(reply)


@with_nginx
def test_commented_locations_refuse_repository_and_metrics(tmp_path, basket):
    """The lines in comments, once active, answer 403 as JSON."""
    paths = ("/v2/repository/models/till/unload", "/metrics")
    lines = ("location /v2/repository/ {", "location = /metrics {")
    added = {f"# {line}": line for line in lines}
    with proxy(tmp_path / "nginx", basket.port, replacing=added) as nginx:
        for path in paths:
            reply = nginx.request("POST", path)
            assert reply.status == 403
            assert _is_json_error(reply)
        assert nginx.request("GET", "/v2").status == 200


@with_nginx
def test_sigterm_behind_nginx_loses_no_request(tmp_path):
    """A pending request is answered; nginx answers 503 until Basket is back."""
    models = make_models(tmp_path / "models")
    port = free_port()
    started = {"model_dir": models, "default_model": "till"}
    bind = f"--bind=127.0.0.1:{port}"
    with proxy(tmp_path / "nginx", port) as nginx:
        assert nginx.request("GET", "/healthz").status == 503
        with (
            serving(bind, "--threads=4", **started) as basket,
            _pending(nginx, basket) as replies,
        ):
            assert basket.stop() == 0
        assert replies[0].status == 200
        reply = nginx.request("GET", "/healthz")
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        assert _is_json_error(reply)
        with serving(bind, **started):
            assert nginx.request("GET", "/readyz").status == 200


@with_nginx
def test_killed_worker_behind_nginx_gets_503(tmp_path):
    """A pending request gets 503 as JSON when SIGKILL ends its worker."""
    models = make_models(tmp_path / "models")
    with (
        serving("--threads=4", model_dir=models, default_model="till") as basket,
        proxy(tmp_path / "nginx", basket.port) as nginx,
        _pending(nginx, basket) as replies,
    ):
        (worker,) = basket.workers()
        os.kill(worker, signal.SIGKILL)
    assert replies[0].status == 503
    assert _is_json_error(replies[0])


@with_nginx
def test_nginx_does_not_retry_a_sent_post(tmp_path, model_server):
    """A POST whose connection broke is a 503; one that was not sent is retried."""

    def breaks(request):
        return None if request.method == "POST" else Response.value("first")

    first, other = (
        model_server(breaks),
        model_server(lambda request: Response.value("other")),
    )
    with proxy(tmp_path / "two", _port(first), _port(other)) as nginx:
        replies = [nginx.predict([[1]]) for _ in range(4)]
    posts = first.requests_to("/predict") + other.requests_to("/predict")
    assert len(posts) == len(replies)
    assert {reply.status for reply in replies} == {200, 503}
    # nginx alternates: the check whether it listens went to the first server.
    with proxy(tmp_path / "dead", _port(other), free_port()) as nginx:
        assert {nginx.predict([[1]]).status for _ in range(4)} == {200}


@with_nginx
def test_hanging_server_gets_504_from_nginx(tmp_path, model_server):
    """Nginx answers 504 as JSON at proxy_read_timeout, here 1 s."""
    received, released = threading.Event(), threading.Event()

    def hang(request):
        if request.method == "POST":
            received.set()
            released.wait(30)
        return Response.value("late")

    server = model_server(hang)
    shorter = {"proxy_read_timeout 35s;": "proxy_read_timeout 1s;"}
    with proxy(tmp_path / "nginx", _port(server), replacing=shorter) as nginx:
        reply = nginx.predict([[1]])
        released.set()
    assert received.is_set()
    assert reply.status == 504
    assert _is_json_error(reply)


def _certificate(folder: Path) -> tuple[str, str]:
    key, certificate = f"{folder}/key.pem", f"{folder}/cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def _over_tls(port: int, certificate: str, path: str) -> int:
    context = ssl.create_default_context(cafile=certificate)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, timeout=10, context=context
    )
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@with_nginx
@with_openssl
def test_commented_tls_lines_serve_https(basket, tmp_path):
    """Nginx serves HTTPS with the lines for TLS; `http2 on` needs a newer nginx."""
    certificate, key = _certificate(tmp_path)
    port = free_port()
    replacing = {
        "# listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "# server_name basket.example.com;": "server_name basket.example.com;",
        "# ssl_certificate     /etc/nginx/tls/fullchain.pem;": (
            f"ssl_certificate {certificate};"
        ),
        "# ssl_certificate_key /etc/nginx/tls/privkey.pem;": (
            f"ssl_certificate_key {key};"
        ),
        "# ssl_protocols ": "ssl_protocols ",
        "# ssl_session_cache ": "ssl_session_cache ",
    }
    with proxy(tmp_path / "nginx", basket.port, replacing=replacing):
        assert _over_tls(port, certificate, "/readyz") == 200


@with_openssl
def test_certfile_and_keyfile_serve_https(tmp_path):
    """Gunicorn serves HTTPS without a proxy."""
    certificate, key = _certificate(tmp_path)
    models = simulated_models(tmp_path / "models", m=MODELS["slow"])
    tls = (f"--certfile={certificate}", f"--keyfile={key}")
    with serving("--threads=4", *tls, ready=False, model_dir=models) as server:

        def is_ready():
            try:
                return _over_tls(server.port, certificate, "/readyz") == 200
            except OSError:
                return False

        wait_until(is_ready, 60, server.log.read_text)


def _unit() -> dict[str, str]:
    """Return the unit's values by key, the last of each."""
    lines = UNIT.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Za-z]+=", line))


def test_unit_starts_basket_and_notifies_systemd(tmp_path, monkeypatch):
    """ExecStart serves and sends READY=1; SIGTERM to the master ends it."""
    command = _unit()["ExecStart"].split()
    assert command[:2] == ["/srv/basket/.venv/bin/gunicorn", "wsgi:app"]
    models = simulated_models(tmp_path / "models", m=MODELS["slow"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        others = [each for each in command[2:] if not each.startswith("--bind=")]
        with serving(*others, model_dir=models) as server:
            assert systemd.recv(1000).startswith(b"READY=1\n")
            assert server.stop() == 0


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_analyze_verifies_the_unit(tmp_path):
    """systemd-analyze finds no problem, with paths of this machine."""
    text = UNIT.read_text().replace(
        "/srv/basket/.venv/bin", str(Path(sys.executable).parent)
    )
    (tmp_path / "basket.service").write_text(text.replace("/srv/basket", str(ROOT)))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "basket.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
