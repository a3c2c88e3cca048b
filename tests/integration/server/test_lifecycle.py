"""A worker's life: start, hooks, heartbeat, max_requests, logs, reference cycles."""

import os
import re
import signal

import pytest

from testing.server import lives
from tests.support.front import chunked, front, get, post, request, until

FORMAT = "%(h)s %(r)s %(s)s %(B)s %(D)s %(a)s %({x-id}i)s"


def test_server_is_found_at_the_wsgi_app_of_the_application():
    """Gunicorn loads an application of Flask's, whose `wsgi_app` has the server."""
    with front(app="flask_like") as server:
        assert server.ask(post("/echo", b"body")).body == b"body"


def test_application_that_can_not_start_ends_the_server():
    """Gunicorn ends, as with any worker that fails to boot; the log has the reason."""
    with front(app="failing_start", ready=False, clean=False) as server:
        assert server.wait() not in (0, None)
        assert "no database" in server.log.read_text()


def test_blocked_event_loop_is_killed_after_the_timeout():
    """A worker without a heartbeat is replaced; one that only waits is not."""
    with front("--timeout=1", "--threads=2", clean=False) as server:
        (worker,) = server.workers()
        assert server.ask(get("/sleep?s=2.2")).body == b"slept"
        assert server.workers() == [worker]
        wire = server.connect(get("/block?s=60"))
        until(lambda: server.workers() not in ([], [worker]))
        assert "WORKER TIMEOUT" in server.log.read_text()
        assert server.ask(post("/echo", b"next")).body == b"next"
        assert worker not in server.workers()
        wire.close()


def test_killed_worker_is_replaced():
    """After any end of a worker the next one serves the same port."""
    with front("--threads=2") as server:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        until(lambda: server.workers() not in ([], [worker]))
        assert server.ask(post("/echo", b"next")).body == b"next"


def test_max_requests_says_close_with_the_last_response():
    """The last request before a restart is answered, and its connection closes."""
    with front("--max-requests=5", "--threads=2") as server:
        until(lambda: server.ask(get("/echo", "Connection: close")).status == 200)
        (worker,) = server.workers()
        wire = server.connect()
        responses = [wire.ask(get("/echo"))]
        while not responses[-1].closes():
            responses.append(wire.ask(get("/echo")))
        assert len(responses) <= 5
        assert wire.has_ended()
        until(lambda: server.workers() not in ([], [worker]))
        assert server.ask(get("/echo")).status == 200


@pytest.mark.parametrize(("workers", "rounds"), [(1, 4), (2, 20)])
def test_max_requests_with_jitter_loses_no_request(workers, rounds):
    """While workers are recycled each request of old and new clients is answered."""
    args = (f"--workers={workers}", "--max-requests=10", "--max-requests-jitter=5")
    with front(*args, "--threads=8") as server:
        seen = set(server.workers())
        kept = [server.connect() for _ in range(4)]
        for number in range(rounds):
            for place, wire in enumerate(kept):
                # An old worker closes what has been idle for a second.
                if wire.closes or not wire.is_open():
                    wire.close()
                    kept[place] = server.connect()
                response = kept[place].ask(post("/echo", b"%d" % number))
                assert response.body == b"%d" % number
            assert server.ask(post("/echo", b"%d" % number)).body == b"%d" % number
            seen.update(server.workers())
        assert len(seen) > workers


def test_max_requests_finishes_requests_under_way():
    """A worker that is recycled answers what it has begun."""
    with front("--max-requests=20", "--threads=2") as server:
        (worker,) = server.workers()
        wires = [server.connect(get("/sleep?s=0.6")) for _ in range(4)]
        server.wait_for("/waits?name=", 4)
        other = server.connect()
        while not other.ask(get("/echo")).closes():
            pass
        assert [wire.response().body for wire in wires] == [b"slept"] * 4
        until(lambda: not lives(worker))


def test_access_log(tmp_path):
    """Each response is a line of the operator's format, also of a refused request."""
    log = tmp_path / "access"
    args = (f"--access-logfile={log}", f"--access-logformat={FORMAT}")
    with front("--threads=2", *args) as server:
        wire = server.connect()
        wire.ask(get("/echo?a=b%20c", "X-Id: seven", "User-Agent: tester"))
        wire.ask(post("/echo", b"four"))
        wire.ask(get("/bytes?bytes=15"))
        wire.ask(request("HEAD", "/bytes?bytes=9"))
        wire.ask(get("/nothing", version="1.0"))
        server.ask(b"NONSENSE /x\r\n\r\n")

        def lines():
            found = log.read_text().splitlines()
            return [line for line in found if " /calls " not in line]

        until(lambda: len(lines()) == 6)
    wanted = [
        "127.0.0.1 GET /echo?a=b%20c HTTP/1.1 200 0 N tester seven",
        "127.0.0.1 POST /echo HTTP/1.1 200 4 N - -",
        "127.0.0.1 GET /bytes?bytes=15 HTTP/1.1 200 15 N - -",
        "127.0.0.1 HEAD /bytes?bytes=9 HTTP/1.1 200 0 N - -",
        "127.0.0.1 GET /nothing HTTP/1.0 404 22 N - -",
        "127.0.0.1 - - HTTP/- 400 63 N - -",
    ]
    pattern = re.compile(r"(?<= )(\d+)(?= \S+ \S+$)")
    took = [int(pattern.search(line)[1]) for line in lines()]
    assert [pattern.sub("N", line) for line in lines()] == wanted
    assert all(0 < each < 20_000_000 for each in took)


def test_default_access_log_line_of_a_response(tmp_path):
    """Gunicorn's default format has all that it wants."""
    log = tmp_path / "access"
    with front(f"--access-logfile={log}") as server:
        server.ask(get("/sleep?s=0.1", "Referer: here", "User-Agent: tester"))
        until(lambda: "/sleep" in log.read_text())
    (line,) = [line for line in log.read_text().splitlines() if "/sleep" in line]
    assert line.startswith("127.0.0.1 - - [")
    assert line.endswith('] "GET /sleep?s=0.1 HTTP/1.1" 200 5 "here" "tester"')


def test_sigusr1_reopens_the_logs(tmp_path):
    """After a rotation lines go to the new file."""
    access, error = tmp_path / "access", tmp_path / "error"
    args = (f"--access-logfile={access}", f"--error-logfile={error}")
    with front("--threads=2", *args) as server:
        access.rename(tmp_path / "access.1")
        error.rename(tmp_path / "error.1")
        server.signal(signal.SIGUSR1)
        until(lambda: access.exists() and error.exists())

        def is_logged():
            assert server.ask(get("/echo?rotated")).status == 200
            return "/echo?rotated" in access.read_text()

        until(is_logged)
        (wire,) = server.hold("usr1")
        server.release("usr1")
        assert wire.response().status == 200


def test_hooks_of_the_configuration_are_called():
    """worker_exit is called with the end of a worker."""
    with front("--threads=2") as server:
        assert server.stop() == 0
        assert "hook worker_exit" in server.log.read_text()


KINDS = {
    "get": [get("/show?x=1")],
    "post": [post("/echo", b"body")],
    "chunked": [chunked("/echo", b"bo", b"dy")],
    "usual": [post("/usual", b"body")],
    "own id": [post("/usual", b"body", "X-Request-Id: mine")],
    "waiting": [get("/sleep?s=0.0001")],
    "unread": [post("/refuse", b"body")],
    "error": [get("/nothing")],
    "expect": [request("POST", "/echo", "Expect: 100-continue", "Content-Length: 0")],
    "pipelined": [post("/echo", b"1") + get("/show")],
}


@pytest.fixture(name="collected", scope="module")
def _collected():
    with front("--threads=2") as server:
        yield server


@pytest.mark.parametrize("kind", KINDS)
def test_request_leaves_no_reference_cycle(collected, kind):
    """With the collector off, nothing is left for it by a request."""
    (sent,) = KINDS[kind]
    wire = collected.connect()
    count = 2 if kind == "pipelined" else 1
    for _ in range(5):
        wire.send(sent)
        wire.responses(count)
    wire.ask(get("/collect"))
    for _ in range(50):
        wire.send(sent)
        wire.responses(count)
    found = wire.ask(get("/collect")).json()
    assert sum(found.values()) < 25, found
    wire.close()


def test_connection_leaves_no_reference_cycle(collected):
    """Health checks without keep-alive leave nothing, either."""
    control = collected.connect()
    for _ in range(2):
        for _ in range(50):
            assert collected.ask(get("/echo", "Connection: close")).status == 200
        until(lambda: collected.connections() == 1, collected.connections)
        found = control.ask(get("/collect")).json()
    assert sum(found.values()) < 25, found
    control.close()
