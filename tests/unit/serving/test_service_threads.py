"""Requests on an event loop whose service.py runs around their time in the queue."""

import asyncio
import json
import logging
import threading
import time
from contextlib import asynccontextmanager
from functools import partial

import pytest

from app import create_app, telemetry
from app.errors import QueueFull
from app.settings import Settings
from testing.server import simulated_models, wait_until
from tests.support.asgi import (
    Call,
    freed_without_a_collection,
    on_loop,
    settle,
)
from tests.support.clocks import OffsetClock
from tests.support.engines import Echo

# Each function is what the test sets, by its name.
SERVICE = """
from app import BadInput
def preprocess(instance):
    if instance == "bad":
        raise BadInput("not this one")
    return hooks["preprocess"](instance)
def predict(model, batch):
    return hooks["predict"](batch)
def postprocess(row):
    return hooks["postprocess"](row)
"""
SIMULATION = {"base_ms": 0, "input_shape": [1], "outputs": 1}
WAIT_S = 30


class Gate:
    """A function that waits until it is opened, and notes what it is called with."""

    def __init__(self):
        self.seen = []
        self._entered, self._goes_on = threading.Event(), threading.Event()

    def __call__(self, value):
        self.seen.append(value)
        self._entered.set()
        self._goes_on.wait(WAIT_S)
        return value

    def open(self):
        self._goes_on.set()

    async def entered(self):
        assert await asyncio.to_thread(self._entered.wait, WAIT_S)


class Served:
    """An application with the model `m`, whose functions return what they get."""

    def __init__(self, application):
        self.application, self._loader = application, application.loader
        self._clock = application.loops.clock = OffsetClock()
        self._loader.start()
        assert self._loader.wait(WAIT_S)
        (self.model,) = application.catalog.models()
        self.hooks = dict.fromkeys(("preprocess", "predict", "postprocess"), _same)
        if self.model.user_code.service.preprocess is not None:
            self.model.user_code.service.preprocess.__globals__["hooks"] = self.hooks
        self._gates = []

    def gate(self, name):
        self.hooks[name] = gate = Gate()
        self._gates.append(gate)
        return gate

    def begin(self, instance, path="/v1/models/m:predict", **headers):
        body = instance if isinstance(instance, bytes) else _body([instance])
        call = Call(self.application.asgi, body)
        headers = {"content-length": str(len(body)), **headers}
        pairs = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        return call, call.begin(path, headers=pairs)

    async def ask(self, instance, **others):
        return await self.begin(instance, **others)[1]

    async def pass_deadline(self, seconds=60):
        """Let time pass on the event loop; the batching thread has the real clock."""
        self._clock.ahead_s += seconds
        asyncio.get_running_loop().fire()
        await settle()

    async def queued(self):
        """Wait until a row is in the model's queue."""
        while not telemetry.totals().versions["m", "1"].queue_rows:
            await asyncio.sleep(0)

    def close(self):
        for gate in self._gates:
            gate.open()
        self._loader.close(WAIT_S)


def _same(value):
    return value


def _body(instances):
    return json.dumps({"instances": instances}).encode()


@asynccontextmanager
async def serving(folder, service=SERVICE, simulation=None, **settings):
    if simulation is not None:
        simulated_models(folder, m=simulation)
    (folder / "m" / "1").mkdir(parents=True, exist_ok=True)
    (folder / "m" / "1" / "service.py").write_text(service)
    settings = {"max_batch_size": 1, **settings}
    served = Served(create_app(Settings(model_dir=folder, user_code=True, **settings)))
    try:
        yield served
    finally:
        await asyncio.to_thread(served.close)


@on_loop
async def test_request_does_not_come_back_to_the_event_loop_between(tmp_path):
    """From preprocess to postprocess a request goes on while the loop is busy."""
    async with serving(tmp_path) as served:
        done = threading.Event()

        def last(row):
            done.set()
            return row

        served.hooks["postprocess"] = last
        task = served.begin("a")[1]
        await settle()
        # Holds the event loop.
        assert done.wait(WAIT_S)
        assert (await task).json() == {"predictions": ["a"]}


@on_loop
async def test_deadline_of_a_queued_row_returns_504_and_drops_it(tmp_path):
    """The text is that of any model, and the row never runs."""
    async with serving(tmp_path) as served:
        gate = served.gate("predict")
        first = served.begin("a")[1]
        await gate.entered()
        waiting = served.gate("preprocess")
        waiting.open()
        late = served.begin("b", x_request_timeout_ms="500")[1]
        await waiting.entered()
        await served.queued()
        await served.pass_deadline()
        call = await late
        assert call.status == 504
        assert (
            "no answer was ready before the request's deadline" in call.json()["error"]
        )
        gate.open()
        await asyncio.to_thread(served.close)
        assert gate.seen == [["a"]]
        await first


@on_loop
async def test_postprocess_that_never_returns_is_late(tmp_path):
    """The error names service.py, as the model has answered."""
    async with serving(tmp_path) as served:
        gate = served.gate("postprocess")
        task = served.begin("a", x_request_timeout_ms="500")[1]
        await gate.entered()
        await served.pass_deadline()
        call = await task
        assert call.status == 504
        assert call.json() == {"error": "service.py did not return by the deadline"}


@on_loop
async def test_deadline_reserves_the_response_overhead(tmp_path):
    """After a response with a large overhead, a quarter of 400 ms is reserved."""
    async with serving(tmp_path) as served:
        jobs, submit = [], served.model.runner.submit
        served.model.runner.submit = lambda job: (jobs.append(job), submit(job))

        def slow(row):
            time.sleep(0.6)
            return row

        served.hooks["postprocess"] = slow
        assert (await served.ask("a")).status == 200
        served.hooks["postprocess"] = _same
        await served.ask("b", x_request_timeout_ms="400")
        assert [job.reserve_s for job in jobs] == [0, pytest.approx(0.1)]


@pytest.mark.parametrize("leaves", ["disconnect", "cancel"])
@on_loop
async def test_row_of_a_client_that_left_is_not_computed(tmp_path, leaves):
    """A disconnect and a cancellation are noticed while a row is queued."""
    async with serving(tmp_path) as served:
        gate = served.gate("predict")
        first = served.begin("a")[1]
        await gate.entered()
        call, second = served.begin("b")
        await served.queued()
        third = served.begin("c")[1]
        if leaves == "cancel":
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
        else:
            # It is looked for in a long wait.
            asyncio.get_running_loop().fire()
            await settle()
            call.disconnect()
            await settle()
        gate.open()
        assert (await first).status == (await third).status == 200
        assert ["b"] not in gate.seen
        if leaves == "disconnect":
            assert (await second).status == 503
            assert call.pending == 0


@pytest.mark.parametrize(
    ("service", "instances", "predictions"),
    [
        ("def preprocess(size): return [size] * size", [1, 3, 1], [[1], [3], [1]]),
        ("def postprocess(row): return int(row[0])", [[4], [5, 5], [6]], [4, 5, 6]),
    ],
    ids=["preprocess makes them", "the client sends them"],
)
@on_loop
async def test_rows_of_unlike_lengths_are_answered_in_order(
    tmp_path, monkeypatch, service, instances, predictions
):
    """Each length is a batch of its own."""
    monkeypatch.setattr("app.engines.simulated.open_engine", lambda *_: Echo())
    async with serving(tmp_path, service, SIMULATION, max_batch_size=4) as served:
        call = await served.ask(_body(instances))
        assert call.json() == {"predictions": predictions}


@on_loop
async def test_model_without_batching_has_its_service(tmp_path):
    """It doesn't run in the threads of service.py, which would seem stuck."""
    async with serving(tmp_path, batching=False) as served:
        names = []

        def note(batch):
            names.append(threading.current_thread().name)
            return batch

        served.hooks["predict"] = note
        assert (await served.ask("a")).json() == {"predictions": ["a"]}
        assert "service" not in names[-1]


@on_loop
async def test_v2_takes_no_thread_of_the_service(tmp_path, monkeypatch):
    """V2 passes service.py by, and a function that never returns doesn't hold it."""
    service = "def postprocess(row): return len(row)"
    async with serving(tmp_path, service, SIMULATION) as served:
        monkeypatch.setattr(served.model.user_code.threads, "submit", None)
        tensor = {"name": "input", "datatype": "FP32", "shape": [1, 1], "data": [1]}
        body = json.dumps({"inputs": [tensor]}).encode()
        assert (await served.ask(body, path="/v2/models/m/infer")).status == 200


def _refuse(_):
    raise QueueFull("full", 1)


@pytest.mark.parametrize(
    "end", ["answered", "bad", "failed", "broken", "refused", "late"]
)
@on_loop
async def test_request_is_in_no_reference_cycle(tmp_path, monkeypatch, end):
    """However a request ends, it is freed without a garbage collection."""
    # pytest keeps its records, and with them tracebacks.
    monkeypatch.setattr(logging.getLogger("app.batching.model_log"), "disabled", True)
    async with serving(tmp_path) as served:
        gate = served.gate("postprocess") if end == "late" else None
        if end == "refused":
            monkeypatch.setattr(served.model.runner, "submit", _refuse)
        if end == "failed":
            served.hooks["postprocess"] = None
        if end == "broken":
            served.hooks["predict"] = None
        await served.ask("bad")
        async with freed_without_a_collection():
            task = served.begin("bad" if end == "bad" else "a")[1]
            if gate is not None:
                await gate.entered()
                await served.pass_deadline()
            status = (await task).status
            del task
            if gate is not None:
                gate.open()
                await asyncio.to_thread(served.close)
        statuses = {"answered": 200, "bad": 400, "refused": 503, "late": 504}
        assert status == statuses.get(end, 500)


@on_loop
async def test_late_row_is_in_no_reference_cycle(tmp_path):
    """One whose deadline passes while it is queued is freed at once, too."""
    async with serving(tmp_path) as served:
        gate = served.gate("predict")
        async with freed_without_a_collection():
            first = served.begin("a")[1]
            await gate.entered()
            task = served.begin("b", x_request_timeout_ms="500")[1]
            await served.queued()
            await served.pass_deadline(1)
            assert (await task).status == 504
            del task
            gate.open()
            assert (await first).status == 200
            del first
            await asyncio.to_thread(served.close)


@on_loop
async def test_request_whose_preprocess_returns_late_is_in_no_reference_cycle(tmp_path):
    """Its rows are dropped at once, after the request has ended."""
    async with serving(tmp_path) as served:
        gate = served.gate("preprocess")
        async with freed_without_a_collection():
            task = served.begin("a", x_request_timeout_ms="100")[1]
            await gate.entered()
            # Its thread has the real clock.
            await asyncio.to_thread(time.sleep, 0.1)
            await served.pass_deadline()
            assert (await task).status == 504
            del task
            gate.open()
            await asyncio.to_thread(served.close)


@on_loop
async def test_preprocess_that_returns_late_submits_nothing(tmp_path):
    """Neither the queue nor the bytes of large requests keep any of the request."""
    async with serving(tmp_path, max_body_bytes=1 << 20) as served:
        submitted = []
        submit = served.model.runner.submit
        served.model.runner.submit = lambda job: (submitted.append(job), submit(job))
        gate = served.gate("preprocess")
        task = served.begin("a" * 100_000, x_request_timeout_ms="100")[1]
        await gate.entered()
        # Its thread has the real clock.
        await asyncio.to_thread(time.sleep, 0.1)
        await served.pass_deadline()
        assert (await task).status == 504
        gate.open()
        # The one thread takes it after the late call.
        is_idle = partial(served.model.user_code.threads.submit_if_idle, list)
        await asyncio.to_thread(wait_until, is_idle, WAIT_S, lambda: "a thread runs")
        assert submitted == []
        # All that large requests may take together.
        chunked = [(b"transfer-encoding", b"chunked")]
        uploads = [
            Call(served.application.asgi, b" " * (1 << 20), ends=False)
            for _ in range(16)
        ]
        tasks = [
            each.begin("/v1/models/m:predict", headers=chunked) for each in uploads
        ]
        await settle()
        assert not any(each.done() for each in tasks)
        for each in uploads:
            each.disconnect()
        await asyncio.gather(*tasks)


@on_loop
async def test_batching_thread_waits_for_no_new_thread(tmp_path, monkeypatch):
    """Where no thread of service.py is idle, the event loop starts one."""
    async with serving(tmp_path) as served:
        starters, start = [], threading.Thread.start

        def note(thread):
            if thread.name == "service":
                starters.append(threading.current_thread().name)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", note)
        gate = served.gate("predict")
        first = served.begin("a")[1]
        await gate.entered()
        waiting = served.gate("preprocess")
        second = served.begin("b")[1]
        await waiting.entered()
        gate.open()
        assert (await first).status == 200
        waiting.open()
        assert (await second).status == 200
        assert "batching" not in starters
        assert len(starters) == 2
