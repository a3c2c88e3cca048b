"""The recorder writes samples, and counts and says what it could not write."""

import threading
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest

from app.background import BackgroundLimits
from app.capture.reader import read_captured
from app.capture.recorder import (
    DROPPED,
    FAILED,
    SKIPPED,
    WRITTEN,
    NotCapturable,
    Recorder,
    Sample,
)
from testing.server import wait_until
from tests.unit.capture.test_blocks import request

WITHIN_S = 10
KEEP = 1_000_000
SOON = BackgroundLimits(0.01, 1000, 1 << 20, 1000, 4 << 20)


class Recording:
    """A recorder of the folder `root`, and what it has counted."""

    def __init__(self, root, bounds=SOON):
        self.counted = Counter()
        self.root = root
        # A clock that stands still: no time is granted beyond what is saved at first.
        self.recorder = Recorder(root, self._count, bounds, clock=lambda: 1000.0)

    def _count(self, model, result, number):
        self.counted[model, result] += number

    def record(self, number=1, model="m", size=100, keep=KEEP, make=None):
        make = make or request(number)
        self.recorder.record(Sample(model, keep, size, make))

    def wait(self, **results):
        wanted = {("m", result): number for result, number in results.items()}
        wait_until(lambda: dict(self.counted) == wanted, WITHIN_S, lambda: self.counted)


@pytest.fixture(name="recording")
def _recording(tmp_path):
    recording = Recording(tmp_path / "captured")
    yield recording
    recording.recorder.close(WITHIN_S)


def test_samples_are_written_to_the_folder_of_their_model(recording):
    """Requests of one write are one block for each model."""
    recording.record(1)
    recording.record(2)
    recording.record(3, model="n")
    recording.recorder.close(WITHIN_S)
    assert recording.counted == {("m", WRITTEN): 2, ("n", WRITTEN): 1}
    reading = read_captured(recording.root / "m")
    assert (len(reading), reading.files) == (2, 1)
    assert len(read_captured(recording.root / "n")) == 1


def test_samples_are_dropped_and_counted_while_a_write_hangs(tmp_path):
    """Recording a request does not wait for the disk."""
    recording = Recording(tmp_path, BackgroundLimits(0.01, 1000, 1 << 20, 2, 1 << 20))
    go, began = threading.Event(), threading.Event()

    def make():
        began.set()
        assert go.wait(WITHIN_S)
        return [request(1)]

    recording.record(make=make)
    assert began.wait(WITHIN_S)
    for _ in range(3):
        recording.record()
    assert recording.counted == {("m", DROPPED): 2}
    go.set()
    recording.wait(dropped=2, written=2)


def test_full_disk_is_logged_once_and_counted(recording, caplog):
    """When there is room again, requests are captured again."""
    caplog.set_level("INFO", "app.capture")
    recording.root.write_text("in the way")
    for failed in range(1, 4):
        recording.record()
        recording.wait(failed=failed)
    recording.root.unlink()
    recording.record()
    recording.wait(failed=3, written=1)
    error, again = [each.getMessage() for each in caplog.records]
    assert error.startswith("model m: requests are not captured: ")
    assert error.endswith("captured: File exists")
    assert again == "model m: requests are captured again"


def test_request_without_json_is_skipped_alone(recording, caplog):
    """The others of its block are written, and the log says it once."""

    def make():
        raise NotCapturable("JSON can't hold their instances")

    for _ in range(2):
        recording.record()
        recording.record(make=make)
    recording.record(make=partial(int, "no number"))
    recording.recorder.close(WITHIN_S)
    assert recording.counted == {("m", WRITTEN): 2, ("m", SKIPPED): 3}
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("model m: some requests are not captured: ")


def test_large_requests_are_written_to_several_blocks(recording):
    """A ring has at least four, so that the newest block does not replace all."""
    big = partial(lambda: [request(1, x=np.zeros((1, 50_000), np.float32))])
    for _ in range(6):
        recording.record(size=200_000, make=big)
    recording.recorder.close(WITHIN_S)
    assert recording.counted == {("m", WRITTEN): 6}
    reading = read_captured(recording.root / "m")
    assert (reading.files, len(reading)) == (4, 4)


def test_requests_of_many_shapes_are_written_in_smaller_blocks(recording):
    """Each shape takes more than its values, of which alone the size is known."""
    made = [request(n, x=np.zeros((1, n), np.int32)) for n in range(1, 101)]
    recording.record(make=lambda: made, keep=120_000)
    recording.wait(written=1)
    reading = read_captured(recording.root / "m")
    assert reading.files > 1
    assert len(reading) > 30


def test_request_larger_than_the_ring_is_counted_as_failed(recording, caplog):
    """It is not kept, and removes no other one."""
    recording.record()
    recording.wait(written=1)
    big = partial(lambda: [request(1, x=np.zeros((1, 500_000), np.float32))])
    recording.record(size=200_000, make=big)
    recording.wait(written=1, failed=1)
    assert "a block is larger than keep_mb" in caplog.text
    assert len(read_captured(recording.root / "m")) == 1


def test_failed_results_are_those_of_the_metric():
    """The words are documented."""
    assert {WRITTEN, DROPPED, FAILED, SKIPPED} == {
        *("written", "dropped", "failed", "skipped")
    }


def test_requests_are_dropped_and_counted_while_no_time_is_left(tmp_path):
    """After a write that took long, requests are refused before they are made."""
    recording = Recording(tmp_path, BackgroundLimits(60, 1000, 1 << 20, 1000, 4 << 20))
    recorder = recording.recorder
    assert recorder.takes("m")
    recording.record(make=busy)
    recorder.close(WITHIN_S)
    assert not recorder.takes("m")
    assert recording.counted == {("m", WRITTEN): 1, ("m", DROPPED): 1}


def busy():
    """Use 50 ms of a core, more than is saved."""
    began_at = time.thread_time()
    while time.thread_time() < began_at + 0.05:
        pass
    return [request(1)]
