"""Access control of real servers: where they listen, and files of keys that change."""

import contextlib
import json
import os
import signal
import socket

import pytest

from testing.server import (
    free_port,
    installed,
    lives,
    metric_sum,
    running,
    serving,
    simulated_models,
    wait_until,
)
from tests.support import worker_classes

MODEL = {"base_ms": 0, "input_shape": [1], "outputs": 1}
ROW = b'{"instances": [[1.0]]}'
FOREIGN = {"Host": "evil.example"}
SHARED = ("--workers=2", "--threads=4")
REFUSED = [
    FOREIGN,
    {"Host": "localhost.evil.example:8000"},
    {"Origin": "http://evil.example", "Content-Type": "text/plain"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
]
HEALTH = ("/", "/healthz", "/readyz", "/v2/health/live")


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    return simulated_models(tmp_path_factory.mktemp("models"), m=MODEL)


def uvicorn(models, *args, **settings):
    port = free_port()
    command = [installed("uvicorn"), "wsgi:asgi", f"--port={port}", *args]
    options = {"ready": False, "check_exit": False, "model_dir": models}
    return running(command, port, **options, **settings)


def gunicorn(models, bind, *args, **settings):
    """Run Gunicorn on one address, without that of `serving`."""
    port = free_port()
    command = [installed("gunicorn"), "wsgi:app", f"--bind={bind.format(port)}", *args]
    return running(command, port, model_dir=models, **settings)


SERVERS = {
    "event-loop": lambda models: serving("--threads=4", model_dir=models),
    "gthread": lambda models: serving(
        "--worker-class=gthread", "--threads=4", model_dir=models
    ),
    "shared": lambda models: serving(*SHARED, model_dir=models, model_process="shared"),
    "uvicorn": uvicorn,
}


@pytest.fixture(scope="module", params=SERVERS)
def server(request, models):
    """A server on 127.0.0.1 without keys."""
    with SERVERS[request.param](models) as server:
        server.wait_until_ready(0)
        yield server


@pytest.mark.parametrize("headers", REFUSED, ids=str)
def test_web_page_of_another_site_is_refused(server, headers):
    """Each route answers 403, and no prediction runs."""
    before = metric_sum(server, "basket_batch_rows_sum")
    for path in ("/predict", "/v1/models/m:predict", "/v2/models/m/infer", *HEALTH):
        for method in ("GET", "POST", "OPTIONS"):
            reply = server.request(method, path, ROW, headers)
            assert reply.status == 403, (method, path)
            assert "BASKET_ALLOWED_HOSTS" in reply.json()["error"]
            assert not [name for name in reply.headers if name.startswith("Access-")]
    assert metric_sum(server, "basket_batch_rows_sum") == before


def test_options_and_head_have_the_status_of_get(server):
    """Under each server, also where a route says no; OPTIONS adds the methods."""
    for path in (*HEALTH, "/metrics", "/v2/models/m/ready", "/v2/models/nobody/ready"):
        status = server.request("GET", path).status
        assert server.request("HEAD", path).status == status
        reply = server.request("OPTIONS", path)
        assert reply.status == status
        if path != "/v2/models/nobody/ready":
            assert (reply.headers["Allow"], reply.body) == ("GET, HEAD, OPTIONS", b"")
    for path in ("/predict", "/v2/models/m/infer"):
        reply = server.request("OPTIONS", path)
        assert (reply.status, reply.headers["Allow"]) == (200, "OPTIONS, POST")
        assert server.request("GET", path).headers["Allow"] == "OPTIONS, POST"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost"},
        {"Host": "LOCALHOST.:99"},
        {"Host": "basket.localhost:8000"},
        {"Host": "[::1]:8000"},
        {"Host": "localhost", "Origin": "http://localhost"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=str,
)
def test_program_of_this_machine_is_answered(server, headers):
    """A client, a probe by address, and the server's own page."""
    assert server.request("POST", "/predict", ROW, headers).status == 200
    assert server.request("GET", "/readyz", headers=headers).status == 200


def test_http_1_0_probe_without_host_is_answered(server):
    """Old load balancers send no Host; browsers always do."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.makefile("rb").readline()


@pytest.mark.parametrize("worker_class", worker_classes.ALL)
def test_address_for_other_machines_is_not_checked(models, worker_class):
    """With 0.0.0.0, probes and sidecars come in on 127.0.0.1 under any name."""
    with gunicorn(models, "0.0.0.0:{}", *worker_class) as server:
        for headers in REFUSED:
            assert server.request("POST", "/predict", ROW, headers).status == 200
            assert server.request("GET", "/readyz", headers=headers).status == 200


@pytest.mark.parametrize("worker_class", worker_classes.ALL)
def test_unix_socket_is_not_checked(models, tmp_path, worker_class):
    """A proxy passes any Host; a browser can't reach the socket."""
    path = str(tmp_path / "http.sock")
    request = b"GET /readyz HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n%b\r\n"
    with gunicorn(models, f"unix:{path}", *worker_class, ready=False) as server:

        def status(host, *headers):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                connection.sendall(request % (host, b"".join(headers)))
                return connection.makefile("rb").readline().split()[1]

        def is_ready():
            with contextlib.suppress(OSError):
                return status(b"evil.example") == b"200"

        server.wait_until(is_ready, 60)
        assert status(b"localhost", b"Sec-Fetch-Site: cross-site\r\n") == b"200"


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
@pytest.mark.parametrize("worker_class", worker_classes.ALL[:2])
def test_ipv6_loopback_is_checked(models, worker_class):
    """The address ::1 is a loopback address, with its own name."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        with gunicorn(models, "[::1]:{}", *worker_class, ready=False) as server:
            assert _ipv6_status(server, "[::1]") == b"200"
            assert _ipv6_status(server, "evil.example") == b"403"
            return
    pytest.skip("needs IPv6")


def _ipv6_status(server, host):
    def connected():
        with contextlib.suppress(OSError):
            return socket.create_connection(("::1", server.port), 10)

    server.wait_until(
        lambda: bool(connection := connected()) and not connection.close(), 60
    )
    with connected() as connection:
        connection.sendall(
            f"GET /healthz HTTP/1.1\r\nHost: {host}:{server.port}\r\n\r\n".encode()
        )
        return connection.makefile("rb").readline().split()[1]


def test_allowed_host_is_answered(models):
    """The names of BASKET_ALLOWED_HOSTS are the server's own."""
    settings = {"model_dir": models, "allowed_hosts": "shop.example, Evil.Example"}
    with serving("--threads=4", **settings) as server:
        assert server.request("GET", "/readyz", headers=FOREIGN).status == 200
        page = {"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}
        assert server.request("POST", "/predict", ROW, page).status == 200
        assert server.request("GET", "/", headers={"Host": "other"}).status == 403


# Files of keys.


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def statuses(server, key, count=10):
    """Return the statuses of requests with a key, on a connection each."""
    return {
        server.request("POST", "/predict", ROW, bearer(key)).status
        for _ in range(count)
    }


@pytest.mark.parametrize(
    "arguments",
    [("--workers=2", "--threads=4"), ("--worker-class=gthread", "--threads=4")],
    ids=["two event loops", "gthread"],
)
def test_key_is_changed_without_a_restart(models, tmp_path, arguments):
    """All workers take the new key, and then refuse the old one."""
    file = tmp_path / "keys"
    file.write_text("s3cret-old\n")
    with serving(*arguments, model_dir=models, api_keys_file=str(file)) as server:
        before = server.workers()
        assert statuses(server, "s3cret-old") == {200}
        assert statuses(server, "s3cret-new") == {401}
        file.write_text("s3cret-old\ns3cret-new\n")
        wait_until(lambda: statuses(server, "s3cret-new") == {200}, 60)
        assert statuses(server, "s3cret-old") == {200}
        file.write_text("s3cret-new\n")
        wait_until(lambda: statuses(server, "s3cret-old") == {401}, 60)
        assert statuses(server, "s3cret-new") == {200}
        assert server.workers() == before
        assert "s3cret" not in server.log.read_text()


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_broken_key_file_ends_no_server(models, tmp_path, process):
    """The last good keys count, also in a worker that starts meanwhile."""
    file = tmp_path / "keys"
    file.write_text("first\n")
    settings = {"admin_keys_file": str(file), "model_process": process}
    unload = "/v2/repository/models/{}/unload"

    def status(key):
        # A model that does not exist: it is looked up after the key.
        return server.request("POST", unload.format("none"), b"", bearer(key)).status

    with serving("--threads=4", model_dir=models, **settings) as server:
        assert (status("first"), status("second")) == (404, 401)
        file.write_text("second\n")
        wait_until(lambda: status("second") == 404, 60)
        file.write_text("")
        log = "BASKET_ADMIN_KEYS_FILE: the file has no key; the last good keys"
        wait_until(lambda: status("second") and log in server.log.read_text(), 60)
        for pid in server.workers():
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: not lives(pid), 60)
        server.wait_until_ready(0)
        assert (status("first"), status("second")) == (401, 404)
        file.write_text("third\n")
        wait_until(lambda: status("third") == 404, 60)
        assert status("second") == 401


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        ("", "the file has no key"),
        ("one\ns3cret other\n", "line 2: expected one key"),
    ],
    ids=["missing", "empty", "malformed"],
)
@pytest.mark.parametrize("kind", ["api", "admin"])
def test_bad_key_file_stops_the_start(models, tmp_path, kind, content, problem):
    """The log names the setting and the problem, and no key."""
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    setting = {f"{kind}_keys_file": str(file)}
    expected = f"BASKET_{kind.upper()}_KEYS_FILE={str(file)!r}: {problem}"
    servers = [serving("--threads=4", ready=False, model_dir=models, **setting)]
    if content:
        # It shows any of these errors in the same way; this file has a key.
        servers.append(uvicorn(models, **setting))
    for server in servers:
        with server as started:
            assert started.process.wait(60) != 0
            log = started.log.read_text()
            assert f"Basket does not start: {expected}" in log
            assert "Traceback" not in log
            assert "s3cret" not in log


def test_health_shows_strangers_a_bare_status(models):
    """The whole body, as they get it."""
    with serving("--threads=4", model_dir=models, api_keys="key") as server:
        assert server.request("GET", "/readyz").json() == {"status": "ready"}
        assert server.request("GET", "/healthz").json() == {"status": "alive"}
        seen = server.request("GET", "/readyz", headers=bearer("key")).json()
        assert list(seen["models"]) == ["m"]
        assert json.loads(server.request("GET", "/v2/models/n/ready").body) == {
            "name": "n",
            "ready": False,
        }
