"""Requests on an event loop: their bodies, their waits, and how jobs wake them."""

import asyncio
import functools
import gc
import gzip
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from app import create_app
from app.api import inference
from app.errors import BadInput, Late, ModelFailed, TooLarge, TooSlow
from app.granian.environ import complete
from app.granian.exchange import LoopExchange
from app.granian.loop import Loop
from app.granian.rsgi import Rsgi
from app.serving.job import tell
from app.serving.routing import Target
from app.settings import Settings
from app.settings.image_config import ImageConfig
from tests.support.jobs import job
from tests.support.pictures import picture, saved
from tests.support.rsgi import Connection, HandLoop, scope

LENGTH = {"content-length": "4"}
ROW = b'{"instances": [[1.0, 2.0, 3.0]]}'
LIMIT = 100_000
CHUNKS = {"transfer-encoding": "chunked"}


def on_loop(test):
    """Run a test as a coroutine."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


async def settle():
    """Let everything on the loop go as far as it goes."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def begin():
    """Make an exchange, and what it needs; the loop's timers are in hand."""

    def begin(*parts, end="whole", empty_parts=None, timeout_s=30.0, **about):
        hand = HandLoop(asyncio.get_running_loop())
        connection = Connection(*parts, end=end, empty_parts=empty_parts)
        exchange = LoopExchange(scope(**about), connection, Loop(hand, timeout_s), "")
        return exchange, connection, hand

    return begin


def waiting_job(exchange, **rest):
    one = job(7, **rest)
    one.wake = exchange.wake
    return one


def finish(*jobs):
    for one in jobs:
        assert one.add(0, {"output": np.array([[7.0]])}, len(jobs), 0.0)
    tell(jobs)


@pytest.mark.parametrize(("headers", "parts"), [(LENGTH, 2), (CHUNKS, 3), ({}, 0)])
@on_loop
async def test_a_body_comes_whole(begin, headers, parts):
    """A body of known length comes at once, in chunks part by part; else none is."""
    sent = [b"ab", b"c", b"d"][:parts]
    exchange, connection, _ = begin(*sent, headers=headers)
    assert await exchange.body(4) == b"".join(sent)
    assert bool(connection.reads) == exchange.has_body() == bool(headers)


@pytest.mark.parametrize("empty_parts", [1, 2], ids=["plain", "an empty frame last"])
@on_loop
async def test_http_2_may_send_a_body_without_a_word(begin, empty_parts):
    """With HTTP/2 a body may have neither a length nor chunks."""
    exchange, _, _ = begin(b"ab", b"cd", empty_parts=empty_parts, http_version="2")
    assert await exchange.body(4) == b"abcd"


@on_loop
async def test_http_2_s_cut_body_is_no_body(begin):
    """With HTTP/2 a body that is cut off has empty parts without end."""
    exchange, _, _ = begin(b"ab", empty_parts=1000, http_version="2")
    with pytest.raises(BadInput, match="can't be read: it is cut off"):
        await exchange.body(10)


@on_loop
async def test_a_body_that_is_too_large_is_not_read(begin):
    """Its announced length is enough to refuse it."""
    exchange, connection, _ = begin(b"abcd", headers=LENGTH)
    with pytest.raises(TooLarge, match="larger than 3 bytes"):
        await exchange.body(3)
    assert not connection.reads


@on_loop
async def test_chunks_are_read_no_further_than_the_limit(begin):
    """Of a body in chunks only what is needed to see that it is too large is read."""
    exchange, connection, _ = begin(*[b"abcd"] * 9, headers=CHUNKS)
    with pytest.raises(TooLarge):
        await exchange.body(10)
    assert connection.reads == 3


@pytest.mark.parametrize("headers", [LENGTH, CHUNKS])
@on_loop
async def test_a_body_that_is_cut_off_is_no_body(begin, headers):
    """An end that comes too early is the client's error, with a length or without."""
    exchange, _, _ = begin(b"ab", end="broken", headers=headers)
    with pytest.raises(BadInput, match="can't be read: it is cut off"):
        await exchange.body(10)


@pytest.mark.parametrize("headers", [LENGTH, CHUNKS])
@on_loop
async def test_a_body_that_stands_still_is_given_up(begin, headers):
    """When the time for a request is over the body is not waited for any more."""
    exchange, _, hand = begin(b"ab", end="still", timeout_s=0.2, headers=headers)
    reading = asyncio.ensure_future(exchange.body(10))
    await settle()
    hand.fire()  # the look that finds it waiting
    (timer,) = hand.timers
    assert 0 < timer.delay_s <= 0.2 + 0.001
    hand.fire()
    with pytest.raises(TooSlow):
        await reading
    assert not hand.timers


@on_loop
async def test_who_is_cancelled_in_time_is_not_late(begin):
    """A cancellation that has another reason goes on its way."""
    exchange, _, _ = begin(b"ab", end="still", headers=LENGTH)
    reading = asyncio.ensure_future(exchange.body(10))
    await settle()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize("quick", [True, False])
@on_loop
async def test_only_what_is_long_goes_to_another_thread(begin, quick):
    """Quick work runs in the loop's thread, all else beside it."""
    exchange, _, _ = begin()
    ran_in = await exchange.work(quick, threading.get_ident)
    assert (ran_in == threading.get_ident()) == quick


@pytest.mark.parametrize("quick", [True, False])
@on_loop
async def test_what_work_raises_is_raised(begin, quick):
    """An error in another thread comes back to the request."""
    exchange, _, _ = begin()

    def fail(text):
        raise BadInput(text)

    with pytest.raises(BadInput, match="no"):
        await exchange.work(quick, fail, "no")


@on_loop
async def test_a_batch_wakes_its_loop_once(begin):
    """Another thread answers 16 requests with one call to the loop, in their order."""
    _, connection, hand = begin()
    loop, seen = Loop(hand, 30.0), []
    exchanges = [LoopExchange(scope(), connection, loop, "") for _ in range(16)]
    jobs = [waiting_job(each) for each in exchanges]

    async def wait(place):
        await exchanges[place].answered(jobs[place])
        seen.append(place)

    waits = [asyncio.ensure_future(wait(place)) for place in range(16)]
    await settle()
    await asyncio.to_thread(finish, *jobs)
    await asyncio.gather(*waits)
    assert seen == list(range(16))
    assert [args for args in hand.woken if args and args[0] == jobs] == [(jobs,)]


@on_loop
async def test_an_answer_that_is_there_already_is_not_waited_for(begin):
    """A job may be answered before anybody waits, and even be told."""
    exchange, _, _ = begin()
    one = waiting_job(exchange)
    finish(one)
    await settle()
    answer = await exchange.answered(one)
    assert answer.batch_rows == 1
    assert not exchange._loop._waiting


@on_loop
async def test_a_job_s_error_is_raised_on_the_loop(begin):
    """An error from another thread ends the wait as its own."""
    exchange, _, _ = begin()
    one = waiting_job(exchange)
    wait = asyncio.ensure_future(exchange.answered(one))
    await settle()
    await asyncio.to_thread(one.fail, ModelFailed("the model failed"))
    with pytest.raises(ModelFailed):
        await wait


@on_loop
async def test_a_deadline_ends_the_wait(begin):
    """When the deadline comes the job is late, and no answer can follow."""
    exchange, _, hand = begin()
    one = waiting_job(exchange, deadline=time.monotonic() + 5)
    wait = asyncio.ensure_future(exchange.answered(one))
    await settle()
    hand.fire()
    (timer,) = hand.timers
    assert 0 < timer.delay_s <= 5 + 0.001
    one.deadline = time.monotonic()
    hand.fire()
    with pytest.raises(Late):
        await wait
    assert not one.add(0, {"output": np.array([[7.0]])}, 1, 0.0)
    assert not hand.timers
    assert not exchange._loop._waiting


@on_loop
async def test_a_deadline_that_is_near_has_its_timer_at_once(begin):
    """What may pass before the next look is not left to it."""
    exchange, _, hand = begin()
    one = waiting_job(exchange, deadline=time.monotonic() + 0.01)
    wait = asyncio.ensure_future(exchange.answered(one))
    await settle()
    (timer,) = hand.timers
    assert timer.delay_s <= 0.01 + 0.001
    finish(one)
    await wait
    assert not hand.timers


@on_loop
async def test_short_waits_need_no_timer_of_their_own(begin):
    """A hundred requests that are answered soon share one look, and leave nothing."""
    exchange, _, hand = begin()
    for _ in range(100):
        one = waiting_job(exchange)
        wait = asyncio.ensure_future(exchange.answered(one))
        await settle()
        finish(one)
        await wait
    assert len(hand.timers) == 1
    hand.fire()
    assert not hand.timers


@pytest.mark.parametrize("hangs_up", [True, False])
@on_loop
async def test_a_client_that_hangs_up_while_it_waits_is_seen(begin, hangs_up):
    """A long wait looks at the connection, and gives that up with its answer."""
    exchange, connection, hand = begin()
    one, is_gone = waiting_job(exchange), exchange.is_gone()
    wait = asyncio.ensure_future(exchange.answered(one))
    await settle()
    hand.fire()
    assert not is_gone()
    if hangs_up:
        connection.gone.set_result(None)
        await settle()
    assert is_gone() == hangs_up
    finish(one)
    await wait
    await settle()
    assert connection.gone.done()
    assert is_gone() == hangs_up


@pytest.mark.parametrize(
    ("path", "sent"),
    [("/v2/models/a b", "/v2/models/a b"), ("/\u00e9", "/\u00c3\u00a9")],
)
@on_loop
async def test_the_path_is_what_wsgi_has(begin, path, sent):
    """A path that is decoded as UTF-8 becomes bytes as Latin-1."""
    exchange, _, _ = begin(path=path)
    assert exchange.environ["PATH_INFO"] == sent


@on_loop
async def test_a_mount_is_taken_off_the_path():
    """Behind --url-path-prefix the application sees its own paths."""
    loop = Loop(asyncio.get_running_loop(), 1.0)
    for path, rest in [("/at/predict", "/predict"), ("/at", "/")]:
        exchange = LoopExchange(scope(path), Connection(), loop, "/at")
        assert exchange.environ["PATH_INFO"] == rest
        assert exchange.environ["SCRIPT_NAME"] == "/at"


@pytest.mark.parametrize("prefix", ["/at", "/at/"])
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/at/healthz", 200),
        ("/at", 200),
        ("/xx/healthz", 404),
        ("/healthz", 404),
        ("/attic", 404),
    ],
)
@on_loop
async def test_beside_a_mount_there_is_nothing(application, prefix, path, status):
    """What is not below --url-path-prefix is a 404 that names the whole path."""
    connection = await ask(application, prefix=prefix, path=path, method="GET")
    assert connection.sent[0] == status
    if status == 404:
        answer = json.loads(connection.sent[2])
        assert answer == {"error": f"there is nothing at {path}"}


@on_loop
async def test_headers_are_where_cgi_puts_them(begin):
    """A header with an underscore can't pass for another one."""
    headers = {"x-client-id": "me", "x_client_id": "you", "content_length": "9"}
    exchange, _, _ = begin(headers=headers | {"content-type": "a/b"})
    environ = exchange.environ
    assert environ["HTTP_X_CLIENT_ID"] == "me"
    assert environ["CONTENT_TYPE"] == "a/b"
    assert "CONTENT_LENGTH" not in environ
    assert environ["REMOTE_ADDR"] == "10.0.0.7"


@on_loop
async def test_a_header_that_comes_twice_is_joined(begin):
    """Two headers of one name are one with both values."""
    about = scope()
    pairs = [("accept", "a/b"), ("accept", "c/d")]
    about.headers = type("Headers", (), {"items": lambda _: pairs})()
    exchange = LoopExchange(
        about, Connection(), Loop(asyncio.get_running_loop(), 1.0), ""
    )
    assert exchange.environ["HTTP_ACCEPT"] == "a/b,c/d"


@on_loop
async def test_http_2_names_the_host_elsewhere(begin):
    """A request without a Host header has HTTP/2's authority in its place."""
    exchange, _, _ = begin(authority="basket:8000", client="[::1]:5", server="[::]:80")
    complete(exchange.environ, exchange.scope, b"abc")
    environ = exchange.environ
    assert environ["HTTP_HOST"] == "basket:8000"
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("::", "80")
    assert environ["REMOTE_ADDR"] == "::1"
    assert environ["wsgi.input"].read() == b"abc"
    assert environ["CONTENT_LENGTH"] == "3"


@pytest.fixture(params=["on", "off"])
def application(request, tmp_path):
    """An application with one simulated model, with batching and without."""
    (tmp_path / "echo" / "1").mkdir(parents=True)
    simulation = {"base_ms": 0, "input_shape": [3], "outputs": 2}
    (tmp_path / "echo" / "1" / "simulated.json").write_text(json.dumps(simulation))
    batching = request.param == "on"
    application = create_app(
        Settings(
            model_dir=tmp_path,
            batching=batching,
            max_body_bytes=LIMIT,
            api_keys=("key",),
        )
    )
    loader = application.extensions["basket"]
    loader.start()
    assert loader.wait(10)
    yield application
    loader.close(10)


async def ask(application, *parts, key="key", headers=(), prefix="", **about):
    """The answer to a request, once it has gone the whole way."""
    rsgi = Rsgi(application, prefix)
    rsgi.__rsgi_init__(asyncio.get_running_loop())
    length = {"content-length": str(sum(map(len, parts)))} if parts else {}
    given = {"authorization": f"Bearer {key}", **length, **dict(headers)}
    connection = Connection(*parts)
    await rsgi.__rsgi__(scope(headers=given, **about), connection)
    return connection


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (ROW, 200, '{"predictions":[[1.0,2.0]]}'),
        (b'{"instances": 1}', 400, '{"error":'),
        (b" " * (LIMIT + 1), 413, f"the body is larger than {LIMIT} bytes"),
    ],
)
@on_loop
async def test_predictions_are_answered_on_the_loop(application, body, status, text):
    """A prediction goes the whole way, and an error is JSON."""
    connection = await ask(application, body)
    assert connection.sent[0] == status
    assert connection.sent[1]["content-type"] == "application/json"
    assert text in connection.sent[2].decode()


@pytest.mark.parametrize(
    ("body", "headers", "decodes_here"),
    [
        (ROW, {}, True),
        (ROW.ljust((64 << 10) + 1), {}, False),
        (gzip.compress(ROW), {"content-encoding": "gzip"}, False),
    ],
    ids=["small", "large", "compressed"],
)
@on_loop
async def test_what_may_be_long_leaves_the_loop(
    application, monkeypatch, body, headers, decodes_here
):
    """A large or compressed body is decoded elsewhere, and a small answer is not."""
    work, stayed = LoopExchange.work, []

    def note(exchange, quick, *rest):
        stayed.append(quick)
        return work(exchange, quick, *rest)

    monkeypatch.setattr(LoopExchange, "work", note)
    connection = await ask(application, body, headers=headers)
    assert connection.sent[0] == 200
    assert stayed == [decodes_here, True]


@pytest.mark.parametrize(
    ("body", "is_quick"),
    [
        (saved(picture(), "JPEG"), True),
        (saved(picture(width=400, height=400), "JPEG"), False),
        (saved(picture(), "PNG"), False),
        (ROW, False),
    ],
    ids=["small", "large", "of another kind", "in JSON perhaps"],
)
def test_of_pictures_only_small_ones_stay(body, is_quick):
    """For a model of pictures, what is quick to decode is a small JPEG as the body."""
    exchange = SimpleNamespace(environ={})
    image = ImageConfig((8, 10), "RGB", "none", "nearest", ())
    model = SimpleNamespace(config=SimpleNamespace(image=image))
    assert inference._decodes_quickly(exchange, body, model) == is_quick


@pytest.mark.parametrize(
    ("arrays", "is_quick"),
    [
        ([np.zeros(16 << 10, np.float32)], True),
        ([np.zeros(16 << 10, np.float32), np.zeros(1)], False),
        ([np.array(["a"], object)], False),
    ],
    ids=["small", "large", "texts"],
)
def test_large_outputs_are_not_quick_to_encode(arrays, is_quick):
    """All outputs count together, and of texts nobody knows how long they are."""
    outputs = {str(place): array for place, array in enumerate(arrays)}
    assert inference._encodes_quickly(outputs) == is_quick


@on_loop
async def test_a_model_that_runs_in_submit_leaves_the_loop(application, monkeypatch):
    """Without batching another thread submits, and with it the loop's own."""
    with application.extensions["basket"]._catalog.lease(Target()) as model:
        runner, threads = model.runner, []
        submit = runner.submit

        def note(job):
            threads.append(threading.get_ident())
            submit(job)

        monkeypatch.setattr(runner, "submit", note)
        assert (await ask(application, ROW)).sent[0] == 200
        assert (threads == [threading.get_ident()]) != runner.runs_in_submit


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/v2/models/echo", 200),
        ("GET", "/predict", 405),
        ("GET", "/nothing", 404),
        ("POST", "/v2/repository/index", 200),
    ],
)
@on_loop
async def test_all_else_is_answered_by_flask(application, method, path, status):
    """Flask's answers come as they are, with one content type."""
    body = (b"{}",) if method == "POST" else ()
    connection = await ask(application, *body, method=method, path=path)
    assert connection.sent[0] == status
    assert connection.sent[1]["content-type"] == "application/json"
    assert json.loads(connection.sent[2]) is not None


@pytest.mark.parametrize(
    ("parts", "about"),
    [((), {"http_version": "2"}), ((b"x",), {})],
    ids=["perhaps", "surely"],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@on_loop
async def test_health_has_no_body_to_wait_for(application, method, parts, about):
    """Whoever only looks needs no key for health, whatever body may follow."""
    about = {"path": "/healthz", "method": method, **about}
    connection = await ask(application, *parts, key="none", **about)
    assert connection.sent[0] == 200
    assert not connection.reads


@on_loop
async def test_an_answered_request_is_let_go_at_once(application):
    """A request and its rows are in no circle, which only a collection would free."""
    gc.collect()
    gc.disable()
    try:
        await ask(application, ROW)
        await settle()
        kept = [each for each in gc.get_objects() if isinstance(each, LoopExchange)]
        assert not kept
    finally:
        gc.enable()


@pytest.mark.parametrize("path", ["/predict", "/v2/repository/index"])
@on_loop
async def test_a_stranger_s_body_is_not_read(application, path):
    """Without a key the answer is a 401, before anything is kept for the client."""
    connection = await ask(application, b"{}", key="none", path=path)
    assert connection.sent[0] == 401
    assert not connection.reads


@on_loop
async def test_flask_s_routes_have_the_limit_too(application):
    """A body for Flask that is too large is a 413 in JSON."""
    connection = await ask(application, b" " * (LIMIT + 1), path="/v2/repository/index")
    assert connection.sent[0] == 413
    assert f"larger than {LIMIT} bytes" in json.loads(connection.sent[2])["error"]


@on_loop
async def test_a_websocket_is_refused(application):
    """Nothing here speaks WebSocket: it is a 404."""
    connection = await ask(application, proto="ws")
    assert connection.sent[0] == 404
