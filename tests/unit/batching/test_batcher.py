"""Batcher: batches, dropped jobs, failing models, metrics and graceful shutdown."""

import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.executor import Executor
from app.batching.job import Job
from app.batching.job_queue import JobQueue
from app.batching.release import FixedTimeout
from app.errors import (
    Abandoned,
    Late,
    ModelFailed,
    OutOfDeviceMemory,
    QueueFull,
    Stopping,
)
from tests.support.engines import (
    Blocks,
    Echo,
    OneValue,
    OutputBeside,
    OutputMissing,
    Puppet,
    Raises,
    TooFewRows,
)
from tests.support.jobs import (
    FakeTime,
    Notes,
    answered,
    executor,
    job,
    outcome,
    outputs,
    submit,
)

AT_ONCE = FixedTimeout(timeout_s=0)
AN_HOUR = FixedTimeout(timeout_s=3600)


def _submit_and_block(batcher, engine, *values):
    """Submit a job and wait until its batch is in the engine."""
    one = submit(batcher, *values)
    engine.wait_until_started()
    return one


def test_batcher_is_idle_when_nothing_waits_or_runs():
    """It is busy from the first queued row until it waits for the next one."""
    fake, seen = FakeTime(), []

    class Looks(Echo):
        def run(self, batch, signature_name):
            seen.append(batcher.is_idle())
            return super().run(batch, signature_name)

    parts = executor(Looks(), 4), AT_ONCE, 16, Notes()
    batcher = Batcher(*parts, clock=fake.clock, wait=fake.wait)
    assert batcher.is_idle()
    submit(batcher, 1, deadline=math.inf)
    assert not batcher.is_idle()
    assert batcher.run_next()
    assert not batcher.is_idle()
    fake.at(fake.now, lambda: seen.append(batcher.is_idle()))
    fake.at(fake.now, lambda: submit(batcher, 2, deadline=math.inf))
    assert batcher.run_next()
    assert seen == [False, True, False]


# Batches.


def test_rows_gather_while_the_engine_is_busy(serve):
    """The first job runs alone at once; those that arrive meanwhile share a batch."""
    engine = Blocks()
    batcher = serve(engine)
    jobs = [_submit_and_block(batcher, engine, 0)]
    jobs += [submit(batcher, 1), submit(batcher, 2, 3)]
    engine.unblock()
    assert [answered(one) for one in jobs] == [[0], [1], [2, 3]]
    assert engine.seen() == [[0], [1, 2, 3]]
    assert [one.batch_rows for one in jobs] == [1, 3, 3]
    assert all(one.enqueued_at <= one.started_at <= one.finished_at for one in jobs)


def test_fixed_batch_timeout_holds_on_an_idle_engine(serve):
    """Under a fixed timeout an idle engine starts with the row that fills a batch."""
    engine = Echo()
    batcher = serve(engine, AN_HOUR)
    jobs = [submit(batcher, n) for n in range(4)]
    assert [answered(one) for one in jobs] == [[0], [1], [2], [3]]
    assert engine.seen() == [[0, 1, 2, 3]]


def test_request_larger_than_a_batch_is_split_and_joined_in_order(serve):
    """Ten rows run as batches of at most four and come back in their order."""
    engine = Echo()
    one = submit(serve(engine), *range(10))
    assert answered(one) == list(range(10))
    assert engine.seen() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_concurrent_requests_get_their_own_rows(serve):
    """Eight threads with requests of all sizes each get their own rows, in order."""
    batcher, wrong = serve(Echo()), []

    def client(place):
        for n in range(40):
            values = [1000 * place + 20 * n + row for row in range(n % 7 + 1)]
            try:
                if answered(submit(batcher, *values)) != values:
                    wrong.append(values)
            except QueueFull:
                continue

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Padding.


def test_padding_is_in_no_metric_or_answer(serve):
    """The answer and the observer have the number of real rows."""
    engine, notes = Echo(), Notes()
    batcher = serve(engine, observer=notes, sizes=(4,))
    one = submit(batcher, 1, 2, 3)
    assert answered(one) == [1, 2, 3]
    assert one.batch_rows == 3
    assert notes.batches == [3]
    assert engine.seen() == [[1, 2, 3, 3]]


@pytest.mark.parametrize(
    ("limit", "batches"),
    [
        ({"fixed_batch_size": 3}, [[0, 0, 0], [1, 2, 3], [4, 4, 4]]),
        ({"fixed_batch_size": 1}, [[0], [1], [2], [3], [4]]),
        ({"takes_whole_tensors": True}, [[0], [1], [2], [3], [4]]),
    ],
)
def test_model_limits_the_size_of_its_batches(serve, limit, batches):
    """Batches have exactly the model's own size, from the one queue of all jobs."""
    engine = Blocks()
    (name, signature), *_ = engine.signatures.items()
    engine.signatures = {name: replace(signature, **limit)}
    batcher = serve(engine)
    jobs = [_submit_and_block(batcher, engine, 0)]
    jobs += [submit(batcher, value) for value in (1, 2, 3, 4)]
    engine.unblock()
    assert [answered(one) for one in jobs] == [[0], [1], [2], [3], [4]]
    assert engine.seen() == batches


def test_padding_repeats_the_last_row_of_each_input(serve):
    """Every input of a batch is padded with its own last row, strings too."""
    given = {}

    class Takes(Echo):
        def run(self, batch, signature_name):
            given.update(batch)
            return {"output": batch["text"]}

    inputs = {"image": np.eye(2), "text": np.array([[b"a"], [b"b"]], object)}
    one = Job(inputs, deadline=time.monotonic() + 10)
    serve(Takes(), sizes=(3,)).submit(one)
    assert outputs(one)["output"].tolist() == [[b"a"], [b"b"]]
    assert given["image"].tolist() == [[1, 0], [0, 1], [0, 1]]
    assert given["text"].tolist() == [[b"a"], [b"b"], [b"b"]]


# Jobs that are dropped before they run.


@pytest.mark.parametrize(
    ("kill", "error"),
    [
        pytest.param({"deadline": 0.0}, Late, id="deadline"),
        pytest.param({"is_abandoned": True}, Abandoned, id="disconnect"),
    ],
)
def test_deadline_or_disconnect_in_the_queue_drops_the_job(serve, kill, error):
    """A queued job whose deadline passes or whose client disconnects is not run."""
    engine = Blocks()
    batcher = serve(engine)
    _submit_and_block(batcher, engine, 0)
    dead = submit(batcher, 1)
    for name, value in kill.items():
        setattr(dead, name, value)
    behind = submit(batcher, 2)
    engine.unblock()
    assert answered(behind) == [2]
    assert isinstance(outcome(dead), error)
    assert engine.seen() == [[0], [2]]


def test_disconnect_while_the_batch_runs_changes_nothing(serve):
    """A running job whose client disconnects gets its result."""
    engine = Blocks()
    one = submit(serve(engine), 1)
    engine.wait_until_started()
    one.abandon()
    engine.unblock()
    assert answered(one) == [1]


def test_batch_of_disconnected_clients_only_is_not_run(serve):
    """If all queued jobs are dead, nothing runs and no batch is counted."""
    engine, notes = Echo(), Notes()
    batcher = serve(engine, observer=notes)
    dead = submit(batcher, 1, is_abandoned=True)
    batcher.close(10)
    assert isinstance(outcome(dead), Abandoned)
    assert engine.seen() == []
    assert notes.batches == []


# Models that fail.


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (ValueError("secret"), ModelFailed, "ValueError"),
        (MemoryError("secret"), ModelFailed, "MemoryError"),
        (SystemExit("secret"), ModelFailed, "SystemExit"),
        (KeyboardInterrupt("secret"), ModelFailed, "KeyboardInterrupt"),
        (OutOfDeviceMemory("1 row is too much"), OutOfDeviceMemory, "1 row is too"),
    ],
)
def test_model_that_raises_fails_its_batch_only(serve, error, expected, text):
    """An exception of the model fails its job, without its text unless it is ours."""
    batcher = serve(Raises(error))
    for n in range(3):
        bad = submit(batcher, Raises.poison)
        with pytest.raises(expected, match=text) as caught:
            outputs(bad)
        assert "secret" not in str(caught.value)
        assert answered(submit(batcher, n)) == [n]


def test_failed_slice_fails_its_job_and_the_rest_is_not_run(serve):
    """A split job whose first batch fails is answered, and its other rows not run."""
    engine = Raises(ValueError("poison"))
    batcher = serve(engine)
    one = submit(batcher, Raises.poison, 1, 2, 3, 4, 5)
    behind = submit(batcher, 9)
    assert answered(behind) == [9]
    assert isinstance(outcome(one), ModelFailed)
    assert engine.seen() == [[Raises.poison, 1, 2, 3], [9]]


@pytest.mark.parametrize(
    ("engine", "sizes", "text"),
    [
        pytest.param(TooFewRows, (), "gave 2 rows of 'output' for 3 rows", id="few"),
        pytest.param(TooFewRows, (4,), "gave 3 rows of 'output' for 4", id="padded"),
        pytest.param(OneValue, (), "gave 0 rows of 'output' for 3 rows", id="value"),
        pytest.param(OutputMissing, (), "gave no output 'output'", id="missing"),
    ],
)
def test_wrong_number_of_output_rows_is_an_error(serve, engine, sizes, text):
    """Outputs that do not match the rows, padding included, name both numbers."""
    batcher = serve(engine(), sizes=sizes)
    for _ in range(2):
        with pytest.raises(ModelFailed, match=text):
            outputs(submit(batcher, 1, 2, 3))


def test_outputs_that_are_not_in_the_signature_are_dropped(serve):
    """An answer has the outputs of the signature and no other."""
    answer = outputs(submit(serve(OutputBeside()), 1, 2, 3))
    assert list(answer) == ["output"]
    assert answer["output"].tolist() == [[1], [2], [3]]


def test_error_outside_the_model_fails_its_batch_only(serve, monkeypatch):
    """A bug outside the model fails the batch, and the next batch is served."""
    batcher = serve(Echo())
    execute = Executor.execute
    monkeypatch.setattr(Executor, "execute", lambda *_: 1 / 0)
    with pytest.raises(ModelFailed, match="could not be run"):
        outputs(submit(batcher, 1))
    monkeypatch.setattr(Executor, "execute", execute)
    assert answered(submit(batcher, 2)) == [2]


def test_batching_thread_that_died_makes_queued_rows_stuck(serve, monkeypatch):
    """The time without progress is infinite when rows wait for a dead thread."""
    before = threading.enumerate()
    batcher = serve(Echo())
    assert batcher.stuck_s() == 0
    (thread,) = set(threading.enumerate()) - set(before)
    monkeypatch.setattr(JobQueue, "take", lambda *_: None)
    assert answered(submit(batcher, 1)) == [1]
    thread.join(10)
    submit(batcher, 2)
    assert batcher.stuck_s() == math.inf


# Metrics and estimates.


def test_failed_batches_are_counted(serve):
    """A batch that fails is counted like any other."""
    notes = Notes()
    batcher = serve(Raises(ValueError("poison")), observer=notes)
    with pytest.raises(ModelFailed):
        outputs(submit(batcher, Raises.poison, 1))
    assert answered(submit(batcher, 2)) == [2]
    batcher.close(10)
    assert notes.batches == [2, 1]


def test_queued_rows_are_reported(serve):
    """The observer gets the number of queued rows with each job and each batch."""
    engine, notes = Blocks(), Notes()
    batcher = serve(engine, observer=notes)
    _submit_and_block(batcher, engine, 0)
    before = len(notes.waiting)
    rest = [submit(batcher, n) for n in (1, 2)]
    assert notes.waiting[before:] == [1, 2]
    engine.unblock()
    assert [answered(one) for one in rest] == [[1], [2]]
    assert notes.waiting[-1] == 0


def test_queued_rows_are_reported_in_the_order_of_changes(serve):
    """The last number reported is right even if a request thread is slow to report."""
    engine = Blocks()

    class Slow(Notes):
        def rows_waiting(self, rows):
            if rows:
                engine.started.wait(0.05)
            super().rows_waiting(rows)

    notes = Slow()
    one = submit(serve(engine, observer=notes), 1)
    engine.unblock()
    assert answered(one) == [1]
    assert notes.waiting[-1] == 0


def test_release_rule_sees_a_batch_end_before_its_clients_return(serve):
    """The rule is called with the end of a batch before any of its jobs is notified."""
    calls, done = [], threading.Event()

    class Records(FixedTimeout):
        def arrived(self, arrivals):
            calls.extend(["arrived"] * len(arrivals))

        def finished(self, rows, now):
            calls.append("finished")

    batcher = serve(Echo(), Records(0))
    first, second = job(1), job(2)
    second.wake = lambda _: done.set()

    def send_next(_):
        batcher.submit(second)
        calls.append("returned")

    first.wake = send_next
    batcher.submit(first)
    assert done.wait(10)
    assert calls[:4] == ["arrived", "finished", "returned", "arrived"]


def test_time_of_a_hold_is_not_in_the_batch_time():
    """A batch whose rows were held after the last one takes as long as its own run."""
    fake, engine = FakeTime(), Puppet()
    batches = executor(engine, 4, clock=fake.clock)
    batcher = Batcher(batches, AN_HOUR, 16, Notes(), wait=engine.rest)
    batcher.start()
    assert engine.begun() is None
    submit(batcher, 1)
    for _ in range(3):
        assert engine.begun() is None
        fake.now += 9
        submit(batcher, 2, 3, 4)
        assert len(engine.begun()) == 4
        submit(batcher, 1)
        fake.now += 1
        engine.finish()
    assert engine.begun() is None
    assert batches.times.expected_s(4) == 1
    engine.unblock()
    batcher.close(10)


def test_batch_that_waited_for_the_engine_is_back_to_back(serve, monkeypatch):
    """Rows that are taken as soon as a batch has run are back to back with it."""
    back_to_back = []
    execute = Executor.execute

    def record(self, batch, **named):
        back_to_back.append(named["back_to_back"])
        execute(self, batch, **named)

    monkeypatch.setattr(Executor, "execute", record)
    engine = Blocks()
    batcher = serve(engine)
    _submit_and_block(batcher, engine, 1)
    second = submit(batcher, 2)
    engine.unblock()
    assert answered(second) == [2]
    assert back_to_back == [False, True]


# Start and graceful shutdown.


def test_start_twice_starts_one_thread(serve):
    """A second start changes nothing."""
    before = threading.active_count()
    batcher = serve(Echo())
    batcher.start()
    assert threading.active_count() == before + 1
    assert answered(submit(batcher, 1)) == [1]


def test_jobs_submitted_before_start_are_served_after_it():
    """A job that was submitted before the start is answered after it."""
    batcher = Batcher(executor(Echo(), 4), AT_ONCE, 16, Notes())
    one = submit(batcher, 1)
    batcher.start()
    assert answered(one) == [1]
    batcher.close(10)


def test_close_drains_the_queue_without_holding(serve):
    """Close runs the held jobs at once, closes the engine, and refuses new jobs."""
    engine = Echo()
    batcher = serve(engine, AN_HOUR)
    jobs = [submit(batcher, n) for n in (1, 2, 3)]
    batcher.close(10)
    assert [answered(one) for one in jobs] == [[1], [2], [3]]
    assert engine.seen() == [[1, 2, 3]]
    assert engine.closed == 1
    with pytest.raises(Stopping) as refused:
        submit(batcher, 1)
    assert refused.value.retry_after_s >= 1


def test_close_past_its_timeout_fails_running_and_queued_jobs(serve, caplog):
    """After the timeout all jobs get Stopping, once; no rows are reported as queued."""
    engine, notes = Blocks(), Notes()
    batcher = serve(engine, observer=notes)
    jobs = [_submit_and_block(batcher, engine, *range(6))]
    jobs += [submit(batcher, 1), submit(batcher, 2, width=2)]
    batcher.close(0)
    batcher.close(0)
    assert [type(outcome(one)) for one in jobs] == [Stopping] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "model m version 1: stopped with 3 requests unanswered: 503"
    ]
    assert notes.waiting[-1] == 0


def test_close_leaves_a_hung_engine_open_until_its_batch_ends(serve):
    """A hung batch's job keeps its Stopping, and the engine closes when it ends."""
    engine = Blocks()
    batcher = serve(engine)
    one = _submit_and_block(batcher, engine, 1)
    batcher.close(0)
    assert engine.closed == 0
    engine.unblock()
    batcher.close(10)
    assert engine.closed == 1
    assert engine.seen() == [[1]]
    assert isinstance(outcome(one), Stopping)


def test_close_before_start_fails_queued_jobs():
    """A Batcher that never started fails its jobs at close and closes its engine."""
    engine = Echo()
    batcher = Batcher(executor(engine, 4), AT_ONCE, 16, Notes())
    one = submit(batcher, 1)
    batcher.close(10)
    assert isinstance(outcome(one), Stopping)
    assert engine.closed == 1
    assert engine.seen() == []


def test_start_after_close_serves_nothing():
    """A Batcher that is started after its close ends its thread at once."""
    batcher = Batcher(executor(Echo(), 4), AT_ONCE, 16, Notes())
    batcher.close(10)
    batcher.start()
    batcher.close(10)
    with pytest.raises(Stopping):
        submit(batcher, 1)
