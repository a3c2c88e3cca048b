"""Sampling once a second, by one of all processes."""

import logging
import os
import queue
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from app import telemetry
from app.call import Call, Head, Peer, Reply
from app.errors import Unavailable
from app.gpus import GpuMemory
from app.run_dir.notes import Notes
from app.telemetry import ModelMetrics
from app.totals import Sums
from app.web.page.error_log import ErrorLog
from app.web.page.observed import Observed
from app.web.page.ring import LineRing
from app.web.page.sampler import KEPT, Sampler
from tests.support.metrics import count_call


def failed_call():
    """Return a call that was refused before its model was known."""
    call = Call(Head("POST", "/predict", "", {}), b"", Peer("", 0, "unix", 0))
    call.error, call.status = Unavailable("full"), 503
    call.reply = Reply(b'{"error": "full"}', status=503)
    return call


@pytest.fixture(name="metrics", scope="module")
def _metrics():
    return ModelMetrics("sampled", "1")


class Process:
    """A process of a server whose run directory is this folder, None: there is none."""

    def __init__(self, folder):
        self.now = 100.0
        self.ring = LineRing(folder and folder / "samples", KEPT)
        self.errors = ErrorLog(folder and folder / "errors")
        notes = Notes(folder and folder / "processes")
        observed = Observed(self.ring, self.errors, notes, lambda: 0)
        self.lock = folder and folder / "sampler"
        last = LineRing(folder and folder / "last_sample", 1)
        gpus = SimpleNamespace(read=lambda: [GpuMemory(0, "card", 1000, 10)])
        self.sampler = Sampler(observed, last, self.lock, gpus, lambda: self.now)

    def tick(self, seconds=1.0):
        self.now += seconds
        self.sampler.tick()

    def samples(self):
        return list(self.ring.newest_first())[::-1]

    def end(self):
        """Close the locked file, as the kernel does for a process that has ended."""
        # Only the sampler that holds the lock keeps the file open.
        (descriptor,) = (
            int(file.name)
            for file in Path("/proc/self/fd").iterdir()
            if file.resolve() == self.lock.resolve()
        )
        os.close(descriptor)


@pytest.fixture(params=["run directory", "memory"])
def process(request, tmp_path):
    return Process(tmp_path if request.param == "run directory" else None)


def test_sample_has_what_happened_since_the_last_one(process, metrics):
    """The first tick only remembers the sums; later ones divide by their seconds."""
    count_call(metrics, 200, 0.5)
    process.tick()
    assert process.samples() == []
    for _ in range(6):
        count_call(metrics, 200, 0.5)
    process.tick(2.0)
    process.tick()
    busy, idle = process.samples()
    assert busy["models"]["sampled"]["status"] == {"200": 3.0}
    assert idle["models"]["sampled"]["status"] == {}
    assert busy["memory_mib"] > 1
    assert busy["gpus"] == [
        {"number": 0, "name": "card", "memory_mib": 1000, "used_mib": 10}
    ]
    assert busy["t"] <= idle["t"] <= time.time() + 1
    assert busy["t"] > time.time() - 60


def test_numbers_of_samples_increase_with_unix_time(process):
    """A page that is open over a restart of the server gets the later samples."""
    began_at = int(time.time())
    for _ in range(4):
        process.tick()
    numbers = [each["n"] for each in process.samples()]
    assert numbers[0] >= began_at
    assert numbers == list(range(numbers[0], numbers[0] + 3))


def test_at_most_five_minutes_are_kept(process, monkeypatch):
    """The oldest samples go."""
    monkeypatch.setattr(telemetry, "totals", Sums)
    for _ in range(KEPT + 10):
        process.tick()
    assert len(process.samples()) == KEPT == 300


def test_only_one_of_two_processes_samples(tmp_path):
    """The other one reads what the first has written."""
    first, second = Process(tmp_path), Process(tmp_path)
    for _ in range(3):
        first.tick()
        second.tick()
    assert len(first.samples()) == 2
    assert first.samples() == second.samples()


def test_another_process_goes_on_when_the_sampling_one_ends(tmp_path, metrics):
    """It counts from the last sample: nothing is lost, and nothing counted twice."""
    first, second = Process(tmp_path), Process(tmp_path)
    for process in (first, second):
        process.tick()
    count_call(metrics, 200, 0.5)
    for process in (first, second):
        process.tick()
    count_call(metrics, 200, 0.5)
    count_call(metrics, 200, 0.5)
    first.end()
    # As long after the last sample as it takes to find out.
    second.tick(2.0)
    second.tick()
    samples = second.samples()
    assert [each["models"]["sampled"]["status"] for each in samples] == [
        *({"200": 1.0}, {"200": 1.0}, {}),
    ]
    numbers = [each["n"] for each in samples]
    assert numbers == sorted(set(numbers))


def test_process_that_follows_at_once_waits_for_its_next_tick(tmp_path, metrics):
    """A few requests in a few milliseconds would be thousands a second."""
    first, second = Process(tmp_path), Process(tmp_path)
    first.tick()
    first.tick()
    first.end()
    second.now = first.now
    count_call(metrics, 200, 0.5)
    second.tick(0.01)
    assert second.samples() == first.samples()
    second.tick(0.99)
    assert second.samples()[-1]["models"]["sampled"]["status"] == {"200": 1.0}


def test_each_process_flushes_its_errors(tmp_path):
    """Those of a process that does not sample are read by all, too."""
    first, second = Process(tmp_path), Process(tmp_path)
    for process in (first, second):
        process.errors.ended([failed_call()])
        process.tick()
    assert [each["count"] for each in first.errors.newest()] == [1, 1]


def test_error_is_logged_once_and_sampling_goes_on(process, monkeypatch, caplog):
    """An error at each tick is one line; afterwards there are samples again."""

    def fail():
        raise OSError("no space left")

    with caplog.at_level(logging.ERROR), monkeypatch.context() as patch:
        patch.setattr(telemetry, "totals", fail)
        for _ in range(3):
            process.tick()
    assert [record.getMessage() for record in caplog.records] == [
        "the page has no samples or errors: no space left"
    ]
    process.tick()
    process.tick()
    assert len(process.samples()) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_ticks_again_and_again_and_is_started_once(monkeypatch):
    """A process that stops does not wait for the thread."""
    process, ticked, threads = Process(None), [], queue.SimpleQueue()
    sampler = process.sampler

    def tick():
        # As long as three intervals, so that there is no wait for the next one.
        process.now += 3
        ticked.append(process.now)
        threads.put(threading.current_thread())
        if len(ticked) == 3:
            # It ends the thread.
            raise SystemExit

    monkeypatch.setattr(sampler, "tick", tick)
    sampler.start()
    thread = threads.get(timeout=10)
    thread.join(10)
    sampler.start()
    assert ticked == [103, 106, 109]
    assert (thread.name, thread.daemon) == ("sampler", True)


@pytest.mark.parametrize(
    ("names", "share"),
    [
        ((), 1.0),
        (("worker.1", "worker.{own}"), 0.5),
        (("model process.1", "worker.{own}", "worker.{parent}"), 1.0),
    ],
    ids=["one process", "two workers", "a model process"],
)
def test_busy_share_is_that_of_the_processes_with_the_model(
    tmp_path, metrics, names, share
):
    """With model processes, web workers hold no model."""
    (tmp_path / "processes").mkdir()
    pids = {"own": os.getpid(), "parent": os.getppid()}
    for name in names:
        (tmp_path / "processes" / name.format(**pids)).touch()
    process = Process(tmp_path)
    process.tick()
    metrics.batch_ran(1, 1.0, [], None)
    process.tick()
    assert process.samples()[-1]["models"]["sampled"]["busy"] == share
