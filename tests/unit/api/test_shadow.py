"""Shadow traffic: which copies run, when, how answers compare, what is counted."""

import threading
import time
from collections import Counter

import numpy as np
import pytest

from app.api.recording.differences import agreeing_rows
from app.api.recording.shadow import Copy, Shadow
from app.batching.unbatched import Unbatched
from app.capture.captured import ROWS, Captured
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import QueueFull
from app.repository.catalog import Catalog
from app.repository.recorded import NOTHING
from app.repository.routing import Routes
from app.repository.served import ServedModel, State
from app.settings import Settings
from app.settings.model_config import ModelConfig
from tests.support.engines import Blocks, Echo, Raises
from tests.support.jobs import Notes, executor, submit
from tests.support.tensors import EchoAll

TIMEOUT_S = 10


class Site:
    """A catalog whose version 1 answers and whose version 2 is the canary."""

    def __init__(self, canary=None):
        self.counts = Counter()
        self.sleeps = []
        self.now = 0.0
        self.catalog = Catalog(None)
        self.catalog.announce("m")
        self.engine = canary or Echo()
        self.stable = self.serve(1, Echo())
        self.canary = self.serve(2, self.engine)
        self.catalog.route("m", Routes({"canary": 2, "gone": 3}), NOTHING)
        parts = self.count, lambda: self.now, self.sleep
        self.shadow = Shadow(self.catalog, TIMEOUT_S, *parts)

    def serve(self, version, engine):
        served = ServedModel(
            *("m", version, "", engine.signatures),
            ModelConfig(Settings(max_batch_size=4)),
            Unbatched(executor(engine, 4, clock=lambda: self.now), 64),
            Notes(),
        )
        self.catalog.add(served)
        return served

    def count(self, model, version, result, rows):
        assert (model, version) == ("m", 2)
        self.counts[result] += rows

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds

    def copy(self, *values, outputs=None, label="canary", model=None):
        """Return a copy of a request with a row for each value."""
        rows = np.float32([[value] for value in values])
        answered = rows if outputs is None else np.float32([[v] for v in outputs])
        about = (len(rows), 0.0, "id", 1, 1, 0.0)
        request = Captured(
            *(DEFAULT_SIGNATURE, {"input": rows}, {"output": answered}, ROWS, *about)
        )
        return Copy(model or self.stable, label, len(rows), rows.nbytes, request)


def test_copies_run_on_the_labels_version_and_are_compared():
    """Rows of several requests share a batch, and each row is counted."""
    site = Site()
    site.shadow.run([site.copy(1, 2), site.copy(3, outputs=[30])])
    assert site.engine.seen() == [[1, 2, 3]]
    assert site.counts == {"agree": 2, "differ": 1}


def test_copies_run_in_single_batches_with_a_look_for_clients_between():
    """The second batch is dropped if a client has come meanwhile."""
    client = Blocks()

    class ClientComes(Echo):
        def run(self, batch, signature_name):
            threading.Thread(target=submit, args=(served.runner, 7)).start()
            client.wait_until_started()
            return super().run(batch, signature_name)

    site = Site(ClientComes())
    served = site.serve(1, client)
    site.shadow.run([site.copy(*range(6), model=served)])
    client.unblock()
    assert site.engine.seen() == [[0, 1, 2, 3]]
    assert site.counts == {"agree": 4, "dropped": 2}


class Slow(Echo):
    """An engine that takes 0.2 s on the clock of a site."""

    site = None

    def run(self, batch, signature_name):
        self.site.now += 0.2
        return super().run(batch, signature_name)


def slow_site():
    engine = Slow()
    engine.site = Site(engine)
    return engine.site


def test_copies_take_a_hundredth_of_the_time():
    """After two batches of 0.2 s comes a rest, which looks for a close."""
    site = slow_site()
    site.shadow.run([site.copy(*range(8))])
    began_at = site.now
    site.sleeps.clear()
    site.shadow.spare_time.rest()
    assert site.now - began_at == pytest.approx(99 * 0.4)
    assert max(site.sleeps) <= 0.05
    site.shadow.spare_time.rest()
    assert site.now - began_at == pytest.approx(99 * 0.4)


def test_copies_that_would_run_for_long_are_dropped():
    """No batch begins after 0.6 s of others, before the next rest."""
    site = slow_site()
    site.shadow.run([site.copy(*range(40))])
    assert site.counts == {"agree": 12, "dropped": 28}
    site.shadow.spare_time.rest()
    site.shadow.run([site.copy(1)])
    assert site.counts["agree"] == 13


def test_rest_ends_with_a_close():
    """The thread of the copies is not waited for."""
    site = slow_site()
    site.shadow.run([site.copy(1)])
    site.shadow.close()
    began_at = site.now
    site.shadow.spare_time.rest()
    assert site.now == began_at


@pytest.mark.parametrize("version", [1, 2])
def test_copies_are_dropped_while_either_version_is_busy(version):
    """They wait for a quarter of a second, with pauses that grow."""
    site = Site()
    engine = Blocks()
    served = site.serve(version, engine)
    client = threading.Thread(target=submit, args=(served.runner, 7))
    client.start()
    engine.wait_until_started()
    model = served if version == 1 else site.stable
    site.shadow.run([site.copy(1, 2, model=model)])
    engine.unblock()
    client.join(TIMEOUT_S)
    assert site.counts == {"dropped": 2}
    assert engine.seen() == [[7]]
    assert 0.25 <= sum(site.sleeps) < 0.3
    assert site.sleeps == sorted(site.sleeps)
    assert len(site.sleeps) < 25


def test_copies_run_once_the_versions_are_idle():
    """A client's job delays them."""
    site, engine = Site(), Blocks()
    served = site.serve(1, engine)
    client = threading.Thread(target=submit, args=(served.runner, 7))
    client.start()
    engine.wait_until_started()

    def sleep(seconds):
        site.sleep(seconds)
        engine.unblock()
        client.join(TIMEOUT_S)

    shadow = Shadow(site.catalog, TIMEOUT_S, site.count, lambda: site.now, sleep)
    shadow.run([site.copy(1, model=served)])
    assert site.counts == {"agree": 1}
    assert 0.005 <= site.now < 0.03


@pytest.mark.parametrize(
    ("gap_s", "result"),
    [(0.1, "dropped"), (0.3, "agree")],
)
def test_copies_run_only_in_gaps_that_are_as_long_as_they(monkeypatch, gap_s, result):
    """Clients that come back at once leave shorter gaps."""
    site = slow_site()
    site.shadow.run([site.copy(1)])
    assert site.counts.pop("agree") == 1
    period_s, began_at = gap_s + 0.1, site.now
    monkeypatch.setattr(
        site.stable.runner,
        "is_idle",
        lambda: (site.now - began_at) % period_s > 0.1,
    )
    site.shadow.run([site.copy(2)])
    assert site.counts == {result: 1}


def test_wait_for_a_gap_becomes_shorter_if_there_is_none(monkeypatch):
    """One long batch must not end shadow traffic."""

    class SlowOnce(Echo):
        def run(self, batch, signature_name):
            site.now += 5 if not self.batches else 0
            return super().run(batch, signature_name)

    site = Site(SlowOnce())
    site.shadow.run([site.copy(1)])
    monkeypatch.setattr(site.stable.runner, "is_idle", lambda: site.now % 0.5 > 0.1)
    for _ in range(20):
        site.shadow.spare_time.rest()
        site.shadow.run([site.copy(1)])
    assert 3 < site.counts["dropped"] < 12
    assert site.counts["agree"] == 21 - site.counts["dropped"]


def test_version_that_answered_gets_no_copy():
    """A client's request to the label itself is not copied."""
    site = Site()
    site.shadow.run([site.copy(1, model=site.canary)])
    assert site.engine.seen() == []
    assert site.counts == {}


@pytest.mark.parametrize("label", ["gone", "unknown"])
def test_label_without_a_loaded_version_gets_no_copy(label, caplog):
    """Nothing is counted, and nothing is an error."""
    site = Site()
    site.shadow.run([site.copy(1, label=label)])
    assert site.counts == {}
    assert not caplog.records


def test_removed_model_gets_no_copy(caplog):
    """Copies that are left are forgotten, also those that do not fit any more."""
    site = Site()
    copy = site.copy(1)
    site.catalog.remove("m")
    site.shadow.run([copy])
    site.shadow.close()
    site.shadow.copy(copy)
    assert site.counts == {}
    assert not caplog.records


def test_failing_version_fails_only_the_copies_at_fault():
    """The model's errors are counted and reach no client."""
    site = Site(Raises(ValueError("secret")))
    site.shadow.run([site.copy(1, Raises.poison)])
    site.shadow.run([site.copy(1, 2)])
    assert site.counts == {"failed": 2, "agree": 2}


def test_refused_copy_is_dropped(monkeypatch):
    """A queue that clients have filled has no room for it."""
    site = Site()

    def refuse(job):
        raise QueueFull("full", 1)

    monkeypatch.setattr(site.canary.runner, "submit", refuse)
    site.shadow.run([site.copy(1)])
    assert site.counts == {"dropped": 1}


def test_version_with_other_inputs_fails_without_a_run(caplog):
    """The log says so once."""
    site = Site(EchoAll(x=("f4", 3)))
    site.shadow.run([site.copy(1)])
    site.shadow.run([site.copy(1)])
    assert site.counts == {"failed": 2}
    (record,) = caplog.records
    assert "version 2 can't run copies of requests to version 1" in record.getMessage()


def test_lease_of_the_version_ends_with_the_copies():
    """A version without clients can be unloaded."""
    site = Site()
    site.shadow.run([site.copy(1)])
    withdrawn = site.catalog.withdraw("m", 2)
    assert withdrawn.state is State.UNLOADING
    assert site.catalog.wait_until_unused(withdrawn, 0)


def test_more_copies_than_are_held_are_dropped_at_once():
    """Memory and threads stay bounded while a batch of copies hangs."""
    site = Site(Blocks())
    site.shadow.copy(site.copy(1))
    site.engine.wait_until_started()
    for _ in range(1500):
        site.shadow.copy(site.copy(1))
    assert site.counts["dropped"] == 1500 - 1023
    site.shadow.close()
    site.engine.unblock()


def test_close_does_not_wait_for_a_batch_of_copies():
    """What has not run is dropped."""
    before = set(threading.enumerate())
    site = Site(Blocks())
    site.shadow.copy(site.copy(1))
    site.engine.wait_until_started()
    site.shadow.copy(site.copy(2))
    site.shadow.close()
    site.engine.unblock()
    started = set(threading.enumerate()) - before
    (thread,) = (each for each in started if each.name == "shadow")
    thread.join(TIMEOUT_S)
    assert site.engine.seen() == [[1]]
    assert site.counts == {"agree": 1, "dropped": 1}


class Timed(Blocks):
    """An engine that notes when its first batch began."""

    began_at = None

    def run(self, batch, signature_name):
        self.began_at = self.began_at or time.monotonic()
        return super().run(batch, signature_name)


def test_copies_start_no_sooner_however_many_there_are():
    """They are due after the linger time, in which the responses are written."""
    site = Site(Timed())
    copy = site.copy(1)
    offered_at = time.monotonic()
    for _ in range(1025):
        site.shadow.copy(copy)
    site.engine.wait_until_started()
    assert site.engine.began_at - offered_at >= 0.01
    assert site.counts == {"dropped": 1}
    site.shadow.close()
    site.engine.unblock()


def agrees(expected, actual):
    return agreeing_rows({"out": expected}, {"out": actual}).tolist()


def test_scores_agree_in_their_top_class():
    """NaN agrees with nothing."""
    expected = np.float32([[1, 2], [3, 1], [0, 1]])
    actual = np.float32([[1, 9], [1, 3], [0, np.nan]])
    assert agrees(expected, actual) == [True, False, False]


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 1, 1)])
def test_other_floats_agree_within_a_hundredth_of_the_largest(shape):
    """Of the largest expected value of all rows."""
    expected = np.float32([100, 1, 1]).reshape(shape)
    actual = np.float32([100.9, 1.9, 2.1]).reshape(shape)
    assert agrees(expected, actual) == [True, True, False]


def test_integers_and_strings_agree_if_equal():
    """Strings of unlike lengths, too."""
    assert agrees(np.array([1, 2]), np.array([1, 3])) == [True, False]
    texts = np.array([b"a", b"bc"], object)
    assert agrees(texts, np.array([b"a", b"b"], object)) == [True, False]


def test_missing_output_or_another_shape_differs():
    """In all rows; and a row differs if any of its outputs does."""
    rows = np.float32([[1], [2]])
    assert agreeing_rows({"out": rows}, {"other": rows}).tolist() == [False] * 2
    assert agrees(rows, rows[:, 0]) == [False] * 2
    both = {"out": rows, "number": np.array([1, 2])}
    other = {"out": rows, "number": np.array([1, 9])}
    assert agreeing_rows(both, other).tolist() == [True, False]
