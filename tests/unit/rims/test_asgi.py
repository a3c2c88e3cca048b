"""The ASGI application, called as an ASGI server calls it."""

import asyncio
import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import numpy as np
import pytest
from flask import request

from app import create_app, memory, telemetry
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.engines.simulated import SimulatedEngine
from app.settings import Settings
from testing.pictures import picture, saved
from tests.support.asgi import Call, freed_without_a_collection, on_loop, settle
from tests.support.clocks import OffsetClock
from tests.support.engines import Blocks, Raises

LIMIT = 100_000
TIMEOUT_S = 30
KEY = (b"authorization", b"Bearer key")
CHUNKED = (b"transfer-encoding", b"chunked")
JSON = (b"content-type", b"application/json")
SIMULATION = {"base_ms": 0, "input_shape": [3], "outputs": 2}


def body_of(*values):
    """A request with a row for each value."""
    return json.dumps({"instances": [[value] * 3 for value in values]}).encode()


ROW = body_of(1.0)


@pytest.fixture(name="serve")
def _serve(tmp_path, clock):
    """Start a server with one model, and return it."""
    loaders = []

    def serve(simulation=(), **settings):
        (tmp_path / "echo" / "1").mkdir(parents=True)
        file = tmp_path / "echo" / "1" / "simulated.json"
        file.write_text(json.dumps(SIMULATION | dict(simulation)))
        values = {
            "model_dir": tmp_path,
            "max_body_bytes": LIMIT,
            "request_timeout_ms": TIMEOUT_S * 1000,
            "api_keys": ("key",),
        }
        application = create_app(Settings(**values | settings))
        application.loops.clock = clock
        loaders.append(application.loader)
        loaders[-1].start()
        assert loaders[-1].wait(10)
        return application

    yield serve
    for loader in loaders:
        loader.close(10)


@pytest.fixture(name="application")
def _application(serve):
    return serve()


@pytest.fixture(name="engine")
def _engine(monkeypatch):
    """The engine of all models; once they are loaded, `hold` blocks its batches."""
    engine = Blocks()
    monkeypatch.setattr("app.engines.simulated.open_engine", lambda *_: engine)
    engine.unblock()
    yield engine
    engine.unblock()


@pytest.fixture(name="clock")
def _clock():
    """The event loop's clock of time limits; the batching thread has the real one."""
    return OffsetClock()


async def pass_time(clock, seconds):
    clock.ahead_s += seconds
    asyncio.get_running_loop().fire()
    await settle()


def no_timer_stays():
    """Return whether no timer is left once all have fired a few times."""
    loop = asyncio.get_running_loop()
    for _ in range(3):
        loop.fire()
    return not loop.timers


def begin(application, *parts, headers=(), key=KEY, path="/predict", **rest):
    """Begin a call; return it and its task."""
    options = {name: rest.pop(name) for name in ("ends", "futures") if name in rest}
    call = Call(application.asgi, *parts, **options)
    names = {name for name, _ in headers}
    length = [(b"content-length", b"%d" % sum(map(len, parts)))] if parts else []
    if rest.get("http_version") == "2" or CHUNKED[0] in names:
        length = []
    return call, call.begin(path, headers=[key, *length, *headers], **rest)


async def begin_blocked(application, engine):
    """Begin a call whose batch runs until the engine is unblocked."""
    engine.block()
    begun = begin(application, ROW)
    await asyncio.to_thread(engine.wait_until_started)
    return begun


async def ask(application, *parts, **rest):
    """Return a call that has been answered."""
    return await begin(application, *parts, **rest)[1]


@on_loop
async def test_304_has_no_headers_of_a_body(application):
    """A client that has the page's file gets neither a type, nor a length, nor a date.

    Each server adds a date.
    """
    found = await ask(application, method="GET", path="/page/app.js")
    assert found.headers["content-type"] == "text/javascript; charset=utf-8"
    shown = [(b"if-none-match", found.headers["etag"].encode())]
    call = await ask(application, method="GET", path="/page/app.js", headers=shown)
    assert (call.status, call.body) == (304, b"")
    assert not {"content-type", "content-length", "date"} & set(call.headers)


# Rows of unlike lengths.


UNEVEN = json.dumps({"instances": [[1, 0], [2], [3, 0], [4, 0, 0]]}).encode()


@on_loop
async def test_rows_of_unlike_lengths_run_in_a_batch_for_each(engine, application):
    """The answers are in the order of the rows, and the stages count once."""
    engine.batches.clear()
    call = await ask(application, UNEVEN)
    assert call.json() == {"predictions": [[1.0], [2.0], [3.0], [4.0]]}
    assert sorted(engine.seen()) == [[1.0, 3.0], [2.0], [4.0]]
    assert call.headers["x-batch-size"] == "2"


@on_loop
async def test_npy_refuses_outputs_of_unlike_lengths(engine, application, monkeypatch):
    """A file has rows of one shape."""
    monkeypatch.setattr(engine, "run", lambda batch, _: {"output": batch["input"]})
    assert (await ask(application, UNEVEN)).json() == {
        "predictions": [[1.0, 0.0], [2.0], [3.0, 0.0], [4.0, 0.0, 0.0]]
    }
    call = await ask(application, UNEVEN, headers=[(b"accept", b"application/x-npy")])
    assert call.status == 400
    assert "ask for JSON" in call.json()["error"]


@on_loop
async def test_one_failed_group_fails_the_request(serve, monkeypatch):
    """A request has one answer: no part of it is sent."""
    engine = Raises(ValueError())
    engine.poison = 1.0
    monkeypatch.setattr("app.engines.simulated.open_engine", lambda *_: engine)
    application = serve()
    body = json.dumps({"instances": [[1], [2, 0]]}).encode()
    call = await ask(application, body)
    assert call.status == 500


@on_loop
async def test_groups_that_do_not_fit_into_the_queue_are_refused_together(
    serve, engine
):
    """One 503 answers the request; its rows that were queued are dropped."""
    application = serve(max_batch_size=1, max_enqueued_batches=2)
    _, blocked = await begin_blocked(application, engine)
    waiting = begin(application, body_of(1.0))
    await settle()
    call = await ask(application, json.dumps({"instances": [[7], [2, 0]]}).encode())
    assert call.status == 503
    engine.unblock()
    assert (await blocked).status == 200
    assert (await waiting[1]).status == 200
    assert [7.0] not in engine.seen()


# Bodies.


@pytest.mark.parametrize("futures", [False, True], ids=["coroutines", "futures"])
@pytest.mark.parametrize(
    "about",
    [{}, {"headers": [CHUNKED]}, {"http_version": "2"}],
    ids=["length", "chunked", "http2"],
)
@on_loop
async def test_body_in_parts_is_joined(application, about, futures):
    """A body may come in any parts, with a length or without; empty ones count, too."""
    parts = (ROW[:5], b"", ROW[5:])
    call = await ask(application, *parts, futures=futures, **about)
    assert call.json() == {"predictions": [[1.0, 1.0]]}
    assert call.reads == len(parts)


@on_loop
async def test_request_without_a_body_does_not_read_one(application):
    """Where neither a length nor chunks are announced there is nothing to receive."""
    call = await ask(application)
    assert call.status == 400
    assert call.reads == 0


@on_loop
async def test_length_of_thousands_of_zeros_is_read(application):
    """A server may pass on a Content-Length with more digits than int() takes."""
    call = await ask(application, headers=[(b"content-length", b"0" * 5000 + b"9")])
    assert call.status == 400
    assert call.reads == 1


@on_loop
async def test_request_without_a_body_is_not_taken_for_disconnected(application):
    """Only a disconnect ends a long wait, not the event of the body that is none."""
    loop, blocked = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, blocked.wait)
    try:
        call, task = begin(application, path="/v2/repository/index")
        await settle()
        assert call.reads == 0
        loop.fire()
        await settle()
        # The empty body, and then the disconnect, which does not come.
        assert (call.reads, call.pending) == (2, 1)
        assert not task.done()
    finally:
        blocked.set()
        await busy
    assert (await task).status == 200
    assert call.pending == 0


@pytest.mark.parametrize("path", ["/predict", "/v2/repository/index"])
@pytest.mark.parametrize("headers", [(), [CHUNKED]], ids=["length", "chunked"])
@on_loop
async def test_disconnect_in_the_body_returns_400(application, headers, path):
    """A truncated body is not run, though what came would be a request."""
    call, task = begin(application, ROW, ends=False, headers=headers, path=path)
    await settle()
    call.disconnect()
    await task
    assert call.status == 400
    assert call.json() == {"error": "the body can't be read: it is cut off"}


@pytest.mark.parametrize("path", ["/predict", "/v2/repository/index"])
@on_loop
async def test_body_over_limit_is_not_read(application, path):
    """Its announced length is enough for a 413."""
    call = await ask(application, b" " * (LIMIT + 1), path=path)
    assert call.status == 413
    assert call.json() == {"error": f"the body is larger than {LIMIT} bytes"}
    assert call.reads == 0


@on_loop
async def test_chunked_body_over_limit_is_read_no_further(application):
    """Of a body without a length only what shows that it is too large is read."""
    parts = [b" " * (LIMIT // 2)] * 9
    call = await ask(application, *parts, headers=[CHUNKED])
    assert call.status == 413
    assert call.reads == 3


@pytest.mark.parametrize("path", ["/predict", "/v2/repository/index"])
@pytest.mark.parametrize("headers", [(), [CHUNKED]], ids=["length", "chunked"])
@on_loop
async def test_body_timeout_returns_408(application, clock, headers, path):
    """A body that stops is waited for until the time for a request is over."""
    call, task = begin(application, ROW[:5], ends=False, headers=headers, path=path)
    await settle()
    await pass_time(clock, TIMEOUT_S - 1)
    assert not task.done()
    await pass_time(clock, 2)
    await task
    assert call.status == 408
    assert call.json() == {"error": "the body has not come in time"}
    assert call.pending == 0
    assert no_timer_stays()


async def upload(application, *sizes):
    """Begin calls whose bodies of so many bytes go on; return them and their tasks."""
    begun = [
        begin(application, b" " * size, ends=False, headers=[CHUNKED]) for size in sizes
    ]
    await settle()
    return begun


async def cut_off(uploads):
    for call, task in uploads:
        call.disconnect()
        assert (await task).status == 400


@on_loop
async def test_large_bodies_in_memory_are_bounded(application):
    """As many bytes as 16 bodies of the largest size are taken; the next is a 503."""
    waiting = await upload(application, *[LIMIT] * 16)
    ((_, refused),) = await upload(application, LIMIT)
    assert (await refused).status == 503
    assert (await ask(application, ROW)).status == 200
    await cut_off(waiting)
    large = await ask(application, ROW.ljust(LIMIT))
    assert large.status == 200


@on_loop
async def test_unpacked_body_counts_as_memory(serve):
    """What a compressed body unpacks to is counted, and released with the request."""
    application = serve(max_body_bytes=1 << 20)
    packed = gzip.compress(ROW.ljust(1 << 20))
    headers = [(b"content-encoding", b"gzip")]
    assert (await ask(application, packed, headers=headers)).status == 200
    waiting = await upload(application, *[1 << 20] * 15)
    assert (await ask(application, packed, headers=headers)).status == 503
    assert (await ask(application, ROW.ljust(1 << 20))).status == 200
    # It is refused before its end, which is missing, has been looked for.
    assert (await ask(application, packed[:-1], headers=headers)).status == 503
    await cut_off(waiting)
    assert (await ask(application, packed, headers=headers)).status == 200
    assert (await ask(application, packed[:-1], headers=headers)).status == 400


NUMBERS = [[0] * 12_000, [0] * 12_000, [0] * 6_000]
TEXTS = [["a" * 30_000], ["b" * 30_000, ""], ["c" * 30_000]]


@pytest.mark.parametrize(
    ("dtype", "rows", "held_bytes"),
    [("f4", NUMBERS, 120_000), ("O", TEXTS, len(json.dumps({"instances": TEXTS})))],
    ids=["numbers", "texts"],
)
@on_loop
async def test_rows_of_unlike_lengths_take_the_bytes_of_one_body(
    serve, engine, dtype, rows, held_bytes
):
    """Each group's numbers are counted, and strings once for all groups."""
    specs = (TensorSpec(name, np.dtype(dtype), (None,)) for name in ("input", "output"))
    engine.signatures = {DEFAULT_SIGNATURE: Signature(*((spec,) for spec in specs))}
    application = serve()
    engine.block()
    body = json.dumps({"instances": rows}).encode()
    task = begin(application, body)[1]
    await asyncio.to_thread(engine.wait_until_started)
    size, rest = divmod(16 * LIMIT - held_bytes, 16)
    *waiting, last = await upload(application, *[size] * 15, size + rest)
    assert not any(task.done() for _, task in (*waiting, last))
    await cut_off([last])
    ((_, refused),) = await upload(application, size + rest + 1)
    assert (await refused).status == 503
    await cut_off(waiting)
    engine.unblock()
    assert (await task).status == 200


@pytest.mark.parametrize(("mebibytes", "trims"), [(1, 0), (5, 1)])
@on_loop
async def test_memory_is_trimmed_after_large_requests(serve, mebibytes, trims):
    """A second after large requests the heap's free memory goes back to the system."""
    application, loop = serve(max_body_bytes=8 << 20), asyncio.get_running_loop()
    for _ in range(3):
        body = ROW.ljust(mebibytes << 20)
        assert (await ask(application, body)).status == 200
    assert memory.give_back not in loop.offloaded
    loop.fire()
    await settle()
    assert loop.offloaded.count(memory.give_back) == trims


@on_loop
async def test_cancellation_in_the_body_is_not_a_timeout(application):
    """A server that cancels a request gets its cancellation back."""
    call, task = begin(application, ROW[:5], ends=False)
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.sent == []
    assert call.pending == 0


@on_loop
async def test_cancellation_in_the_body_releases_its_memory(application):
    """What has come of large bodies counts no more."""
    for _ in range(2):
        waiting = await upload(application, *[LIMIT] * 16)
        assert not any(task.done() for _, task in waiting)
        for _, task in waiting:
            task.cancel()
        await settle()
    assert no_timer_stays()


# What runs on the event loop, and what in a thread.


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (ROW, 200, '{"predictions":[[1.0,1.0]]}'),
        (b'{"instances": 1}', 400, '{"error":'),
    ],
)
@on_loop
async def test_predictions_are_answered(serve, batching, body, status, text):
    """A prediction has its headers, an error is JSON; neither reaches Flask."""
    application = serve(batching=batching)
    application.flask.before_request(lambda: pytest.fail("Flask was asked"))
    call = await ask(application, body)
    assert call.status == status
    assert text in call.body.decode()
    assert call.headers["content-type"] == "application/json"
    assert call.headers["content-length"] == str(len(call.body))
    if status == 200:
        assert call.headers["x-batch-size"] == "1"


@pytest.mark.parametrize(
    ("body", "headers", "threads"),
    [
        (ROW, [], 0),
        (ROW.ljust((64 << 10) + 1), [], 1),
        (gzip.compress(ROW), [(b"content-encoding", b"gzip")], 1),
    ],
    ids=["small", "large", "compressed"],
)
@on_loop
async def test_large_or_compressed_body_is_decoded_in_a_thread(
    application, body, headers, threads
):
    """A small body is decoded on the event loop, and so is a small response encoded."""
    assert (await ask(application, body, headers=headers)).status == 200
    assert len(asyncio.get_running_loop().offloaded) == threads


@on_loop
async def test_disconnect_is_noticed_while_a_body_is_decoded(application, engine):
    """The decoding stops, and no rows are queued."""
    loop, go_on = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, go_on.wait)
    batches = len(engine.batches)
    call, task = begin(application, ROW.ljust(100_000 - 1))
    await settle()
    loop.fire()
    await settle()
    call.disconnect()
    await settle()
    go_on.set()
    await busy
    assert (await task).status == 503
    error = "the client disconnected before its rows were decoded"
    assert call.json() == {"error": error}
    assert call.pending == 0
    assert len(engine.batches) == batches


@pytest.mark.parametrize(
    ("body", "content_type", "threads"),
    [
        (saved(picture(), "JPEG"), b"image/jpeg", 0),
        (saved(picture(width=400, height=400), "JPEG"), b"image/jpeg", 1),
        (saved(picture(), "PNG"), b"image/png", 1),
        (json.dumps({"instances": [[[[1] * 3] * 10] * 8]}).encode(), JSON[1], 1),
    ],
    ids=["small", "large", "of another kind", "in JSON perhaps"],
)
@on_loop
async def test_picture_is_decoded_in_a_thread_unless_small(
    serve, tmp_path, body, content_type, threads
):
    """A model of pictures decodes on the event loop only a small JPEG as the body."""
    (tmp_path / "echo").mkdir()
    (tmp_path / "echo" / "basket.toml").write_text(
        '[image]\nsize = [8, 10]\nmode = "RGB"\nscale = "none"\n'
    )
    application = serve({"input_shape": [8, 10, 3]})
    headers = [(b"content-type", content_type)]
    assert (await ask(application, body, headers=headers)).status == 200
    assert len(asyncio.get_running_loop().offloaded) == threads


@pytest.mark.parametrize(("values", "threads"), [(16 << 10, 0), ((16 << 10) + 1, 1)])
@on_loop
async def test_large_response_is_encoded_in_a_thread(serve, values, threads):
    """Outputs of more than 64 KiB do not block the event loop."""
    application = serve({"input_shape": [values], "outputs": values})
    row = ",".join(["1"] * values)
    call = await ask(application, b'{"instances":[[%b]]}' % row.encode())
    assert len(call.json()["predictions"][0]) == values
    assert len(asyncio.get_running_loop().offloaded) == threads


@on_loop
async def test_texts_are_encoded_in_a_thread(serve, engine, monkeypatch):
    """The length of texts is not known from their array."""
    specs = (
        TensorSpec("input", np.dtype("f4"), (1,)),
        TensorSpec("output", np.dtype("O"), ()),
    )
    engine.signatures = {DEFAULT_SIGNATURE: Signature(*((spec,) for spec in specs))}
    texts = np.array([b"a"], object)
    monkeypatch.setattr(
        engine, "run", lambda batch, _: {"output": texts.repeat(len(batch["input"]))}
    )
    call = await ask(serve(), b'{"instances": [[1]]}')
    assert call.json() == {"predictions": ["a"]}
    assert len(asyncio.get_running_loop().offloaded) == 1


@on_loop
async def test_model_without_batching_runs_in_a_thread(serve, monkeypatch):
    """An inference does not block the event loop."""
    application, threads = serve(batching=False), []
    run = SimulatedEngine.run

    def note(*args, **kwargs):
        threads.append(threading.get_ident())
        return run(*args, **kwargs)

    monkeypatch.setattr(SimulatedEngine, "run", note)
    assert (await ask(application, ROW)).status == 200
    assert threads
    assert threading.get_ident() not in threads


# Waits.


@on_loop
async def test_batch_wakes_the_event_loop_once(serve, engine):
    """The 16 requests of a batch are resumed by one call from the batching thread."""
    application, loop = serve(max_batch_size=16), asyncio.get_running_loop()
    first = (await begin_blocked(application, engine))[1]
    tasks = [begin(application, body_of(float(n)))[1] for n in range(16)]
    await settle()
    loop.woken.clear()
    engine.unblock()
    calls = await asyncio.gather(*tasks)
    await first
    for number, call in enumerate(calls):
        assert call.json() == {"predictions": [[float(number)]]}
        assert call.headers["x-batch-size"] == "16"
    sizes = [len(args[0]) for args in loop.woken]
    assert sizes == [1, 16]


@on_loop
async def test_metrics_of_a_batch_are_written_together(serve, engine, monkeypatch):
    """A batch of 16 requests takes far fewer than 16 writes."""
    application, flushes = serve(max_batch_size=16), []
    flush = telemetry.flush
    first = (await begin_blocked(application, engine))[1]
    tasks = [begin(application, ROW)[1] for _ in range(16)]
    await settle()
    monkeypatch.setattr(telemetry, "flush", lambda: flushes.append(1) or flush())
    engine.unblock()
    await asyncio.gather(first, *tasks)
    await settle()
    asyncio.get_running_loop().fire()
    assert 1 <= len(flushes) <= 4


@on_loop
async def test_error_of_a_batch_is_the_response(serve, monkeypatch):
    """An error in the batching thread is each request's 500."""
    engine = Raises(ValueError("no"))
    monkeypatch.setattr("app.engines.simulated.open_engine", lambda *_: engine)
    call = await ask(serve(), body_of(Raises.poison))
    assert call.status == 500
    assert "failed" in call.json()["error"]


@on_loop
async def test_deadline_returns_504_and_drops_the_rows(serve, engine, clock):
    """When the deadline passes the wait ends, and the rows never run."""
    application = serve()
    first = (await begin_blocked(application, engine))[1]
    late = begin(application, body_of(7.0))[1]
    await settle()
    await pass_time(clock, TIMEOUT_S - 1)
    assert not late.done()
    await pass_time(clock, 2)
    for task in (first, late):
        assert (await task).status == 504
    assert no_timer_stays()
    engine.unblock()
    await asyncio.to_thread(application.loader.close, 10)
    assert [7.0] not in engine.seen()


@on_loop
async def test_near_deadline_has_its_timer_at_once(serve, engine, clock):
    """A deadline before the next sweep is not left to that."""
    application = serve()
    engine.block()
    headers = [(b"x-request-timeout-ms", b"20")]
    task = begin(application, ROW, headers=headers, futures=True)[1]
    await settle()
    # The other timer may be that of the disconnect, after 100 ms.
    delay_s = min(timer.delay_s for timer in asyncio.get_running_loop().timers)
    # A sum with the time since the machine started is not exact.
    assert delay_s < 0.0211
    await pass_time(clock, 0.021)
    assert (await task).status == 504


@on_loop
async def test_short_waits_share_their_timers(application):
    """A hundred requests that are answered soon set no more timers than one does."""
    loop = asyncio.get_running_loop()
    assert (await ask(application, ROW)).status == 200
    timers = len(loop.timers)
    for _ in range(100):
        assert (await ask(application, ROW)).status == 200
    assert len(loop.timers) == timers
    assert no_timer_stays()


@on_loop
async def test_near_deadlines_add_no_sweeps_while_another_waits(serve, engine, clock):
    """Requests with near deadlines bring the next sweep forward, and add none to it."""
    application = serve()
    first = (await begin_blocked(application, engine))[1]
    for _ in range(10):
        headers = [(b"x-request-timeout-ms", b"20")]
        late = begin(application, body_of(7.0), headers=headers)[1]
        await settle()
        await pass_time(clock, 0.03)
        assert (await late).status == 504
    # The sweep, and perhaps the flush of metrics.
    assert len(asyncio.get_running_loop().timers) <= 2
    engine.unblock()
    assert (await first).status == 200


@on_loop
async def test_disconnect_while_a_request_waits_drops_its_rows(serve, engine, clock):
    """A long wait listens for the disconnect; the rows of that client never run."""
    application, loop = serve(max_batch_size=1), asyncio.get_running_loop()
    first, first_task = await begin_blocked(application, engine)
    second, second_task = begin(application, body_of(7.0))
    third, third_task = begin(application, body_of(8.0))
    await settle()
    # Short waits do not listen.
    assert first.pending == second.pending == 0
    assert [timer.delay_s for timer in loop.timers].count(0.1) == 3
    await pass_time(clock, 0.1)
    assert first.pending == second.pending == third.pending == 1
    second.disconnect()
    await settle()
    assert second.pending == 0
    engine.unblock()
    await asyncio.gather(first_task, second_task, third_task)
    await settle()
    assert (first.status, second.status, third.status) == (200, 503, 200)
    assert second.json() == {"error": "the client closed the connection"}
    assert [7.0] not in engine.seen()
    assert [8.0] in engine.seen()
    # No `receive` waits after the response.
    assert first.pending == third.pending == 0
    metrics = await ask(application, path="/metrics", method="GET")
    assert b'basket_rejected_total{reason="abandoned"} ' in metrics.body
    assert b'basket_queue_rows{model="echo",version="1"} 0.0' in metrics.body


class Broken(Call):
    """A request whose server's `receive` raises once the client is gone."""

    async def _receive(self):
        event = await super()._receive()
        if event["type"] == "http.disconnect":
            raise ConnectionResetError
        return event


@on_loop
async def test_error_of_the_server_counts_as_a_disconnect(serve, engine):
    """The rows of that client never run, and the server gets its error back."""
    application = serve(max_batch_size=1)
    first = (await begin_blocked(application, engine))[1]
    body = body_of(7.0)
    gone = Broken(application.asgi, body)
    headers = [KEY, (b"content-length", b"%d" % len(body))]
    task = gone.begin(headers=headers)
    await settle()
    asyncio.get_running_loop().fire()
    await settle()
    gone.disconnect()
    with pytest.raises(ConnectionResetError):
        await task
    last = begin(application, body_of(8.0))[1]
    await settle()
    engine.unblock()
    assert (await first).status == (await last).status == 200
    assert [7.0] not in engine.seen()


@on_loop
async def test_cancellation_while_a_job_is_queued_drops_its_rows(serve, engine):
    """A server that cancels a request leaves no rows of it in the queue."""
    application = serve(max_batch_size=1)
    first = (await begin_blocked(application, engine))[1]
    canceled = begin(application, body_of(7.0))[1]
    await settle()
    canceled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await canceled
    last = begin(application, body_of(8.0))[1]
    await settle()
    engine.unblock()
    for task in (first, last):
        assert (await task).status == 200
    assert [7.0] not in engine.seen()


def test_batching_thread_outlives_an_event_loop(serve, engine, caplog):
    """Answers for a closed event loop are dropped, and the next rows are run."""
    application = serve()

    @on_loop
    async def leave():
        await begin_blocked(application, engine)

    leave()
    engine.unblock()
    reply = application.flask.test_client().post(
        "/predict", data=body_of(2.0), headers={"Authorization": "Bearer key"}
    )
    assert reply.json == {"predictions": [[2.0]]}
    assert "could not be run" not in caplog.text


@on_loop
async def test_answered_request_is_in_no_reference_cycle(application):
    """A request and its rows are freed at once, without a garbage collection."""
    async with freed_without_a_collection():
        await ask(application, ROW)
        await settle()


# The scope.


@pytest.mark.parametrize(
    ("raw_path", "root", "status", "text"),
    [
        ("/v1/models/echo:predict", "", 200, "predictions"),
        ("/v1/models/echo/versions/1:predict", "", 200, "predictions"),
        ("/v1/models/%65cho:predict", "", 200, "predictions"),
        ("/v1/models/%C3%A9:predict", "", 404, "Latest(é)"),
        ("/v1/models/a%2Fb:predict", "", 404, "Latest(a/b)"),
        ("/v1/models/a%3Ab:predict", "", 404, "Latest(a:b)"),
        ("/at/v1/models/echo:predict", "/at", 200, "predictions"),
        ("/at/v1/models/a%2Fb:predict", "/at", 404, "Latest(a/b)"),
    ],
)
@on_loop
async def test_v1_names_models_in_the_raw_path(
    application, raw_path, root, status, text
):
    """An escaped slash or colon is a part of a name, and separates nothing."""
    about = {"raw_path": raw_path.encode(), "root_path": root}
    call = await ask(application, ROW, path=unquote(raw_path), **about)
    assert call.status == status
    assert text in json.dumps(call.json(), ensure_ascii=False)


@pytest.mark.parametrize(
    ("path", "root", "status", "text"),
    [
        ("/v1/models/echo:predict", "", 200, "predictions"),
        ("/v1/models/echo/versions/1:predict", "", 200, "predictions"),
        ("/v1/models/é:predict", "", 404, "Latest(é)"),
        ("/at/v1/models/echo:predict", "/at", 200, "predictions"),
    ],
)
@on_loop
async def test_v1_path_without_a_raw_path(application, path, root, status, text):
    """`raw_path` is optional in ASGI; without it the decoded path names the model."""
    call = await ask(application, ROW, path=path, root_path=root)
    assert call.status == status
    assert text in json.dumps(call.json(), ensure_ascii=False)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/at/predict", 200, "predictions"),
        ("/at/none", 404, "there is nothing at /none"),
        ("/attic", 404, "there is nothing at /attic"),
        ("/atpredict", 404, "there is nothing at /atpredict"),
        ("/athealthz", 404, "there is nothing at /athealthz"),
    ],
)
@on_loop
async def test_root_path_ends_at_a_slash(application, path, status, text):
    """A path that only begins with the same letters is not below the root path."""
    call = await ask(application, ROW, path=path, root_path="/at")
    assert call.status == status
    assert text in json.dumps(call.json())


@pytest.mark.parametrize("path", ["/at", "/at/"])
@on_loop
async def test_root_path_alone_is_the_root(application, path):
    """A server mounted at a path has its root there."""
    call = await ask(application, path=path, method="GET", root_path="/at")
    assert call.json()["status"] == "alive"


@pytest.fixture(name="environs")
def _environs(application):
    """The environ of each request that Flask answers."""
    seen = []
    application.flask.before_request(lambda: seen.append(request.environ))
    return seen


@on_loop
async def test_headers_are_variables_of_wsgi(application, environs):
    """A header with an underscore is dropped, and one that comes twice is joined."""
    headers = [
        *((b"x-client-id", b"me"), (b"x_client_id", b"you")),
        *((b"content_length", b"9"), (b"script_name", b"/x")),
        *((b"accept", b"a/b"), (b"accept", b"c/d")),
        (b"content-type", b"a/b"),
    ]
    await ask(application, b"{}", headers=headers, path="/v2/repository/index")
    (environ,) = environs
    assert environ["HTTP_X_CLIENT_ID"] == "me"
    assert environ["HTTP_ACCEPT"] == "a/b,c/d"
    assert environ["CONTENT_TYPE"] == "a/b"
    assert environ["CONTENT_LENGTH"] == "2"
    assert environ["SCRIPT_NAME"] == ""
    assert environ["REMOTE_ADDR"] == "10.0.0.7"


@on_loop
async def test_flask_has_the_environ_of_pep_3333(application, environs):
    """A path that is no ASCII is bytes as Latin-1; the server's address is there."""
    about = {"query_string": b"a=b", "scheme": "https", "http_version": "2"}
    await ask(application, b"{}", path="/\u00e9", server=("::1", 80), **about)
    (environ,) = environs
    assert environ["PATH_INFO"] == "/\u00c3\u00a9"
    assert environ["RAW_URI"] == "/%C3%A9?a=b"
    assert environ["QUERY_STRING"] == "a=b"
    assert environ["SERVER_PROTOCOL"] == "HTTP/2"
    assert environ["wsgi.url_scheme"] == "https"
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("::1", "80")


@pytest.mark.parametrize("server", [None, ("/run/basket", None)])
@on_loop
async def test_unix_socket_has_no_addresses(application, environs, server):
    """A server without address or client answers, and WSGI has a port all the same."""
    about = {"client": None, "server": server}
    assert (await ask(application, ROW, **about)).status == 200
    call = await ask(application, path="/healthz", method="GET", **about)
    assert call.status == 200
    assert environs[0]["SERVER_PORT"] == "80"
    assert environs[0]["REMOTE_ADDR"] == ""


# Flask's routes.


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
async def test_other_routes_are_answered_by_flask(application, method, path, status):
    """Flask's responses have one content type and their length."""
    body = (b"{}",) if method == "POST" else ()
    call = await ask(application, *body, method=method, path=path)
    assert call.status == status
    assert call.json() is not None
    assert call.headers["content-length"] == str(len(call.body))


@on_loop
async def test_head_has_the_length_of_get(application):
    """HEAD is answered with the headers of GET, and without a body."""
    whole = await ask(application, method="GET", path="/healthz")
    call = await ask(application, method="HEAD", path="/healthz")
    assert call.status == 200
    assert call.headers["content-length"] == str(len(whole.body))
    assert call.body == b""


@pytest.mark.parametrize(
    ("parts", "about"),
    [((), {"http_version": "2"}), ((b"x",), {})],
    ids=["perhaps", "surely"],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@on_loop
async def test_health_does_not_wait_for_a_body(application, method, parts, about):
    """Health needs neither a key nor a body."""
    nobody = (b"x-none", b"")
    options = {"key": nobody, "path": "/healthz", "method": method, **about}
    call = await ask(application, *parts, **options)
    assert call.status == 200
    assert call.reads == 0


@pytest.mark.parametrize("path", ["/predict", "/v2/repository/index"])
@on_loop
async def test_body_without_an_api_key_is_not_read(application, path):
    """Without a key the response is a 401, before anything is kept for the client."""
    call = await ask(application, b"{}", key=(b"x-none", b""), path=path)
    assert call.status == 401
    assert call.reads == 0


@on_loop
async def test_health_is_answered_while_all_threads_are_busy(application):
    """Routes that only read have threads of their own."""
    loop, blocked = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, blocked.wait)
    try:
        for path in ("/healthz", "/readyz", "/metrics", "/v1/models/echo"):
            call = await ask(application, path=path, method="GET")
            assert call.status == 200
        posted = begin(application, b"{}", path="/v2/repository/index")[1]
        await settle()
        assert not posted.done()
    finally:
        blocked.set()
        await busy
    assert (await posted).status == 200


# The lifespan, and other protocols.


@on_loop
async def test_lifespan_shutdown_answers_waiting_requests_with_503(serve, engine):
    """Requests whose batch has not begun are answered before the shutdown completes."""
    application = serve(max_batch_size=1)
    begun = (await begin_blocked(application, engine))[1]
    waiting = begin(application, ROW)[1]
    await settle()
    to_app, from_app = asyncio.Queue(), asyncio.Queue()
    lifespan = asyncio.create_task(
        application.asgi({"type": "lifespan"}, to_app.get, from_app.put)
    )
    to_app.put_nowait({"type": "lifespan.startup"})
    assert await from_app.get() == {"type": "lifespan.startup.complete"}
    assert not waiting.done()
    to_app.put_nowait({"type": "lifespan.shutdown"})
    assert await from_app.get() == {"type": "lifespan.shutdown.complete"}
    await lifespan
    for task in (begun, waiting):
        call = await task
        assert call.status == 503
        assert call.json() == {"error": "the server is stopping"}
    call = await ask(application, ROW)
    assert call.status == 503
    assert int(call.headers["retry-after"]) >= 1


@on_loop
async def test_websocket_is_refused(application):
    """Nothing here speaks WebSocket: the handshake is closed."""
    call = Call(application.asgi)
    await call.begin(type="websocket")
    assert call.sent == [{"type": "websocket.close"}]
