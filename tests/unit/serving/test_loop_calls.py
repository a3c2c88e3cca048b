"""Calls of one batch on an event loop: what fails for one costs the others nothing."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from app.batching.job import Job, notify
from app.call import Call, Head, Peer, Reply
from app.engines.base import DEFAULT_SIGNATURE
from app.protocols.protocol import Protocol
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.repository.served import ServedModel
from app.serving.loop_calls import LoopCalls
from app.serving.predictor import Limits, Predictor
from app.settings import Settings
from app.settings.model_config import ModelConfig
from tests.support.engines import Echo
from tests.support.jobs import Notes

PEER = Peer("10.0.0.7", 51234, "127.0.0.1", 8000)


class NoThreads(ThreadPoolExecutor):
    """An executor of a process that may have no further thread."""

    def submit(self, *_, **__):
        raise RuntimeError("can't start new thread")


class Runner:
    """Keeps jobs until `answer` answers all at once, as a batch."""

    runs_in_submit = False

    def __init__(self):
        self.jobs = []

    def submit(self, job):
        self.jobs.append(job)

    def answer(self):
        for job in self.jobs:
            job.succeed({"output": job.inputs["input"]}, len(self.jobs), 1.0)
        notify(self.jobs)


class Rights:
    """Allows all."""

    origins = None

    def check(self, headers, address):
        pass


class Site:
    """A model whose batches the test runs; a body is how many values its row has."""

    def __init__(self, listeners=()):
        self.runner, self.catalog = Runner(), Catalog(None)
        self.told, self.replies = [], {}
        signature = Echo().signatures[DEFAULT_SIGNATURE]
        self.catalog.add(
            ServedModel(
                *("m", 1, "", {DEFAULT_SIGNATURE: signature}),
                *(ModelConfig(Settings()), self.runner, Notes()),
            )
        )
        predictor = Predictor(
            self.catalog,
            Rights(),
            [Protocol(self._begin, self._finish, self._find)],
            [*listeners, self.told.extend],
            Limits(30_000, 1000),
        )
        loop = asyncio.get_running_loop()
        loop.set_default_executor(NoThreads())
        self.calls = LoopCalls(predictor, self._begin, NoThreads())

    def _find(self, head):
        return Target() if head.path == "/row" else None

    def _begin(self, call):
        rows = np.zeros((int(call.body), 1), np.float32)
        return Job({"input": rows}, call.deadline)

    def _finish(self, call, outputs):
        return Reply(b"%d" % len(outputs["output"]))

    def start(self, body=b"1", path="/row", reply_to=None):
        def note(call, reply):
            self.replies[call] = reply.status

        head = Head("POST", path, "", {})
        self.calls.start(call := Call(head, body, PEER, reply_to or note))
        return call

    def leases(self):
        version, _ = self.catalog.take(Target())
        self.catalog.give_back([version])
        return version.leases


def on_a_loop(test):
    """Run a coroutine function as a test."""

    def run():
        asyncio.run(test())

    run.__doc__ = test.__doc__
    return run


async def _answer(site):
    """Run the batch, in a thread as it is."""
    await asyncio.sleep(0)  # the end of the round, where jobs are submitted
    thread = threading.Thread(target=site.runner.answer)
    thread.start()
    thread.join()
    await asyncio.sleep(0)


@on_a_loop
async def test_call_without_a_thread_for_its_large_reply_costs_no_other_one():
    """It fails; those behind it in the batch have their replies, and all are told."""
    site = Site()
    bodies = [b"1", b"90000", b"1"]
    calls = [site.start(body) for body in bodies]
    await _answer(site)
    assert [site.replies[call] for call in calls] == [200, 500, 200]
    assert site.told == calls
    assert site.leases() == 0


@on_a_loop
async def test_reply_that_can_not_be_written_costs_no_other_one():
    """A logger of the user's own may raise."""

    def reply_to(call, reply):
        raise OSError("the log is full")

    site = Site()
    calls = [site.start(), site.start(reply_to=reply_to), site.start()]
    await _answer(site)
    assert site.replies == {calls[0]: 200, calls[2]: 200}
    assert site.told == calls
    assert site.leases() == 0


@on_a_loop
async def test_listener_that_fails_keeps_no_lease():
    """The other listeners are told, and the next calls are answered."""

    def listen(calls):
        raise OSError("the disk is full")

    site = Site([listen])
    for _ in range(2):
        call = site.start()
        await _answer(site)
        site.runner.jobs.clear()
        assert site.replies[call] == 200
    assert len(site.told) == 2
    assert site.leases() == 0


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_call_without_a_thread_for_flask_is_answered(method):
    """It would wait for ever."""

    async def run():
        site = Site()
        replies = []
        call = Call(
            Head(method, "/other", "", {}),
            *(b"", PEER, lambda _, reply: replies.append(reply.status)),
        )
        site.calls.start(call)
        assert replies == [500]

    asyncio.run(run())
