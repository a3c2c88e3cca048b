"""The Batcher and its twin without batches: one right answer for each job."""

import math
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.executor import Executor
from app.batching.job import Job
from app.batching.job_queue import JobQueue
from app.batching.release import FixedTimeout
from app.batching.unbatched import Unbatched
from app.errors import (
    Abandoned,
    CannotMeetDeadline,
    Late,
    ModelFailed,
    OutOfDeviceMemory,
    QueueFull,
    Stopping,
    TooLarge,
)
from tests.support.clocks import standing_clock
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
from tests.support.jobs import FakeTime, Notes, answered, executor, job, outcome

AT_ONCE = FixedTimeout(timeout_s=0)
AN_HOUR = FixedTimeout(timeout_s=3600)
FAILURES = [
    pytest.param(ValueError("secret"), id="exception"),
    pytest.param(MemoryError("secret"), id="out of memory"),
    pytest.param(SystemExit("secret"), id="system exit"),
    pytest.param(KeyboardInterrupt("secret"), id="keyboard interrupt"),
]
WRONG_OUTPUTS = [
    pytest.param(TooFewRows, "gave 2 rows of 'output' for 3 rows", id="too few"),
    pytest.param(OneValue, "gave 0 rows of 'output' for 3 rows", id="one value"),
    pytest.param(OutputMissing, "gave no output 'output'", id="missing"),
]


@pytest.fixture(name="serve")
def _serve():
    """Start a Batcher of 4 rows a batch and 16 in the queue; closed at the end."""
    started = []

    def serve(engine, release=None, observer=None, sizes=(), **rest):
        release, observer = release or AT_ONCE, observer or Notes()
        batcher = Batcher(
            executor(engine, 4, observer, sizes, **rest), release, 4, observer
        )
        started.append((engine, batcher))
        batcher.start()
        return batcher

    yield serve
    for engine, batcher in started:
        engine.let_go()
        batcher.close(10)


def _submit(runner, *values, **rest):
    one = job(*values, **rest)
    runner.submit(one)
    return one


def _submit_and_block(batcher, engine, *values):
    """Keep the engine busy with a job."""
    one = _submit(batcher, *values)
    engine.wait_until_started()
    return one


# When batches start, and what is in them.


def test_an_idle_engine_starts_at_once_and_a_busy_one_lets_rows_gather(serve):
    """The first job runs alone, and those that came meanwhile run as one batch."""
    engine = Blocks()
    batcher = serve(engine)
    jobs = [_submit_and_block(batcher, engine, 0)]
    jobs += [_submit(batcher, n) for n in (1, 2, 3)]
    engine.let_go()
    assert [answered(one) for one in jobs] == [[0], [1], [2], [3]]
    assert engine.seen() == [[0], [1, 2, 3]]


def test_a_fixed_timeout_holds_an_idle_engine(serve):
    """Under a fixed timeout an idle engine starts with the row that fills a batch."""
    engine = Echo()
    batcher = serve(engine, AN_HOUR)
    jobs = [_submit(batcher, n) for n in range(4)]
    assert [answered(one) for one in jobs] == [[0], [1], [2], [3]]
    assert engine.seen() == [[0, 1, 2, 3]]


def test_an_answer_tells_its_batch(serve):
    """An answer carries the rows of its batch and no negative time."""
    engine = Blocks()
    batcher = serve(engine)
    _submit_and_block(batcher, engine, 0)
    one, _ = _submit(batcher, 1), _submit(batcher, 2, 3)
    engine.let_go()
    answer = one.wait()
    assert answer.batch_rows == 3
    assert answer.queue_s >= 0
    assert answer.infer_s >= 0


def test_a_request_larger_than_a_batch_is_split_and_joined_in_order(serve):
    """Ten rows run as batches of at most four and come back in their order."""
    engine = Echo()
    one = _submit(serve(engine), *range(10))
    assert answered(one) == list(range(10))
    assert engine.seen() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_rows_of_different_shapes_run_apart(serve):
    """Rows of two shapes that wait together are answered from batches of their own."""
    engine = Blocks()
    batcher = serve(engine)
    _submit_and_block(batcher, engine, 0)
    jobs = [_submit(batcher, n, width=1 + n % 2) for n in range(1, 5)]
    engine.let_go()
    assert [answered(one) for one in jobs] == [[1], [2], [3], [4]]
    assert engine.seen() == [[0], [1, 3], [2, 4]]


def test_each_of_many_threads_gets_its_own_rows_back(serve):
    """Eight threads with requests of all sizes each get their own rows, in order."""
    batcher, wrong = serve(Echo()), []

    def client(place):
        for n in range(40):
            values = [1000 * place + 20 * n + row for row in range(n % 7 + 1)]
            try:
                if answered(_submit(batcher, *values)) != values:
                    wrong.append(values)
            except QueueFull:
                continue

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# What a batch is filled up to.


def test_a_batch_is_filled_up_to_the_next_allowed_size(serve):
    """A batch is filled up with its last row, and the answers for that are dropped."""
    engine = Blocks()
    batcher = serve(engine, sizes=(2, 4))
    jobs = [_submit_and_block(batcher, engine, 0)]
    jobs += [_submit(batcher, 1), _submit(batcher, 2, 3)]
    engine.let_go()
    assert [answered(one) for one in jobs] == [[0], [1], [2, 3]]
    assert engine.seen() == [[0, 0], [1, 2, 3, 3]]


def test_a_batch_of_an_allowed_size_is_run_as_it_is(serve):
    """A request is split at the largest allowed size, and only its rest filled up."""
    engine = Echo()
    one = _submit(serve(engine, sizes=(1, 2, 4)), *range(7))
    assert answered(one) == list(range(7))
    two = _submit(serve(engine, sizes=(1, 2, 4)), 8, 9)
    assert answered(two) == [8, 9]
    assert engine.seen() == [[0, 1, 2, 3], [4, 5, 6, 6], [8, 9]]


def test_only_real_rows_are_counted(serve):
    """The answer and the observer tell the rows of requests, not what fills up."""
    notes = Notes()
    batcher = serve(Echo(), observer=notes, sizes=(4,))
    assert _submit(batcher, 1, 2, 3).wait().batch_rows == 3
    assert notes.batches == [3]


def test_each_input_is_filled_up(serve):
    """Every input of a batch gets more of its own last row, strings too."""
    given = {}

    class Takes(Echo):
        def run(self, batch, signature_name):
            given.update(batch)
            return {"output": batch["text"]}

    inputs = {"image": np.eye(2), "text": np.array([[b"a"], [b"b"]], object)}
    one = Job(inputs, deadline=time.monotonic() + 10)
    serve(Takes(), sizes=(3,)).submit(one)
    assert one.wait().outputs["output"].tolist() == [[b"a"], [b"b"]]
    assert given["image"].tolist() == [[1, 0], [0, 1], [0, 1]]
    assert given["text"].tolist() == [[b"a"], [b"b"], [b"b"]]


def test_rows_that_are_lost_are_missed_in_a_batch_that_was_filled_up(serve):
    """A model that gives as many rows as were asked, but not as many as it got, fails.

    Nobody could tell which of them is whose.
    """
    batcher = serve(TooFewRows(), sizes=(4,))
    with pytest.raises(ModelFailed, match="gave 3 rows of 'output' for 4 rows"):
        _submit(batcher, 1, 2, 3).wait()


# What is refused.


def test_more_rows_than_the_queue_holds_are_refused(serve):
    """A request with more rows than the whole queue is told both numbers."""
    with pytest.raises(TooLarge, match=r"17 rows .* holds 16"):
        _submit(serve(Echo()), *range(17))


def test_as_many_rows_as_the_queue_holds_are_served(serve):
    """A request that fills an empty queue to the last row is served."""
    assert answered(_submit(serve(Echo()), *range(16))) == list(range(16))


def test_a_full_queue_refuses_and_goes_on(serve):
    """A job beyond the bound is refused at once, and those inside are answered."""
    engine = Blocks()
    batcher = serve(engine)
    first = _submit_and_block(batcher, engine, 0)
    rest = [_submit(batcher, n) for n in range(16)]
    with pytest.raises(QueueFull, match="16 of at most 16 rows, and 2 more"):
        _submit(batcher, 1, 2)
    engine.let_go()
    assert [answered(one) for one in (first, *rest)] == [[0], *([n] for n in range(16))]


@pytest.mark.parametrize(
    ("batches_s", "retry_after_s"),
    [
        pytest.param([], 1, id="no batch yet"),
        pytest.param([0.001], 1, id="quick batches"),
        pytest.param([3.0], 15, id="one of 3 s runs and four wait"),
        pytest.param([3.0, 3.0, 3.0], 15, id="steady"),
        pytest.param([3.0, 8.0], 20, id="a slower one counts for a tenth, and doubt"),
        pytest.param([2.55], 13, id="rounded up"),
    ],
)
def test_retry_after_is_computed(serve, batches_s, retry_after_s):
    """A refusal says in how many seconds the rows that wait now will have run."""
    fake, engine = FakeTime(), Puppet()
    batcher = serve(engine, clock=fake.clock)
    for took_s in batches_s:
        one = _submit(batcher, 0)
        engine.begun()
        fake.now += took_s
        engine.finish()
        one.wait()
    _submit(batcher, 0)
    engine.begun()
    _submit(batcher, *range(16), deadline=math.inf)
    with pytest.raises(QueueFull) as refused:
        _submit(batcher, 1, deadline=math.inf)
    assert refused.value.retry_after_s == retry_after_s


def _busy_batcher(serve, took_s=3.0):
    """A Batcher with a batch in its engine, whose batches have taken so long."""
    fake, engine = FakeTime(), Puppet()
    batcher = serve(engine, clock=fake.clock)
    one = _submit(batcher, 0)
    engine.begun()
    fake.now += took_s
    engine.finish()
    one.wait()
    _submit(batcher, 1)
    engine.begun()
    return batcher, fake


@pytest.mark.parametrize(
    ("waiting", "ran_s", "timeout_s", "refused"),
    [
        pytest.param(0, 0.0, 5.5, True, id="behind the batch that runs"),
        pytest.param(0, 0.0, 7.0, False, id="behind it, with time"),
        pytest.param(0, 2.0, 5.5, False, id="behind one that is nearly done"),
        pytest.param(0, 9.0, 5.5, False, id="behind one that takes long"),
        pytest.param(0, 9.0, 2.5, True, id="behind it, but with no time of its own"),
        pytest.param(3, 0.0, 7.0, False, id="in the same batch as others"),
        pytest.param(4, 0.0, 7.0, True, id="behind a full batch"),
        pytest.param(4, 0.0, 10.0, False, id="behind a full batch, with time"),
    ],
)
def test_what_can_not_be_answered_in_time_is_refused(
    serve, waiting, ran_s, timeout_s, refused
):
    """A job whose deadline comes before its batch would end is refused at once."""
    batcher, fake = _busy_batcher(serve)
    fake.now += ran_s
    for n in range(waiting):
        _submit(batcher, n, deadline=math.inf)
    deadline = time.monotonic() + timeout_s
    if refused:
        with pytest.raises(CannotMeetDeadline, match=r"about \d\.00 s.* is \d\.\d+ s"):
            _submit(batcher, 9, deadline=deadline)
    else:
        _submit(batcher, 9, deadline=deadline)


def test_a_batch_takes_as_long_as_what_it_is_filled_up_to(serve):
    """What is refused for its deadline counts with the rows that fill its batch up."""
    fake, engine = FakeTime(), Puppet()
    batcher = serve(engine, sizes=(1, 4), clock=fake.clock)
    for rows in [4, 1] * 30:
        one = _submit(batcher, *range(rows))
        engine.begun()
        fake.now += rows
        engine.finish()
        one.wait()
    _submit(batcher, 0)
    engine.begun()
    with pytest.raises(CannotMeetDeadline, match=r"about 5\.0"):
        _submit(batcher, 1, 2, deadline=time.monotonic() + 4)


def test_a_refusal_tells_when_it_would_have_been_in_time(serve):
    """Retry-After is what is missing to the deadline, in whole seconds."""
    batcher, _ = _busy_batcher(serve)
    with pytest.raises(CannotMeetDeadline) as refused:
        _submit(batcher, 9, deadline=time.monotonic() + 2.5)
    assert refused.value.retry_after_s == 4


def test_a_polite_client_is_not_refused_for_what_others_wait(serve):
    """The wait that counts is a client's own, not that of a client with many rows."""
    batcher, _ = _busy_batcher(serve)
    for n in range(12):
        _submit(batcher, n, deadline=math.inf, client="flood")
    deadline = time.monotonic() + 7
    with pytest.raises(CannotMeetDeadline):
        _submit(batcher, 1, deadline=deadline, client="flood")
    _submit(batcher, 1, deadline=deadline, client="polite")


def test_time_is_kept_for_the_way_back(serve):
    """A job whose batch would end in time, but not its answer, is refused."""
    batcher, _ = _busy_batcher(serve)
    for reserve_s in (0.0, 2.0):
        one = job(1, deadline=time.monotonic() + 7)
        one.reserve_s = reserve_s
        if reserve_s:
            with pytest.raises(CannotMeetDeadline):
                batcher.submit(one)
        else:
            batcher.submit(one)


def test_an_idle_engine_takes_any_job_in_time(serve):
    """However long batches took, a job that finds the engine idle is tried."""
    fake, engine = FakeTime(), Puppet()
    batcher = serve(engine, clock=fake.clock)
    for _ in range(2):
        one = _submit(batcher, 0, deadline=time.monotonic() + 5)
        engine.begun()
        fake.now += 60
        engine.finish()
        assert answered(one) == [0]


def test_a_deadline_that_has_passed_is_late(serve):
    """A job that comes after its deadline is told so, whatever waits."""
    batcher, _ = _busy_batcher(serve)
    with pytest.raises(Late):
        _submit(batcher, 1, deadline=time.monotonic() - 1)


# Whether it makes progress.


def test_a_batcher_that_waits_for_its_engine_tells_how_long(serve):
    """The time without progress is that of the batch in the engine; idle, it is 0."""
    batcher, fake = _busy_batcher(serve)
    fake.now += 40
    assert batcher.stuck_s() == 40
    assert serve(Echo()).stuck_s() == 0


def test_a_batching_thread_that_died_is_told(serve, monkeypatch):
    """Rows that wait for a thread that is no more wait for ever."""
    batcher = serve(Echo())
    assert batcher.stuck_s() == 0
    monkeypatch.setattr(JobQueue, "take", lambda *_: None)
    assert answered(_submit(batcher, 1)) == [1]
    batcher._thread.join(10)
    _submit(batcher, 2)
    assert batcher.stuck_s() == math.inf


def test_a_fault_of_ours_fails_its_batch_only(serve, monkeypatch):
    """An error outside the model is its batch's 500, and the next batch is served."""
    batcher = serve(Echo())
    execute = Executor.execute
    monkeypatch.setattr(Executor, "execute", lambda *_: 1 / 0)
    with pytest.raises(ModelFailed, match="could not be run"):
        _submit(batcher, 1).wait()
    monkeypatch.setattr(Executor, "execute", execute)
    assert answered(_submit(batcher, 2)) == [2]


# What is dropped before it runs.


def test_a_row_whose_deadline_passed_is_never_run(serve):
    """A job that is late in the queue is answered so, and the model never sees it."""
    engine = Blocks()
    batcher = serve(engine)
    _submit_and_block(batcher, engine, 0)
    late = _submit(batcher, 1)
    late.deadline = time.monotonic()
    behind = _submit(batcher, 2)
    engine.let_go()
    assert answered(behind) == [2]
    assert isinstance(outcome(late), Late)
    assert engine.seen() == [[0], [2]]


def test_a_row_whose_client_went_away_is_never_run(serve):
    """A job whose client hangs up while it waits is dropped before the model runs."""
    engine, gone = Blocks(), threading.Event()
    batcher = serve(engine)
    _submit_and_block(batcher, engine, 0)
    abandoned = _submit(batcher, 1, is_disconnected=gone.is_set)
    behind = _submit(batcher, 2)
    gone.set()
    engine.let_go()
    assert answered(behind) == [2]
    assert isinstance(outcome(abandoned), Abandoned)
    assert engine.seen() == [[0], [2]]


def test_a_client_that_goes_while_its_batch_runs_changes_nothing(serve):
    """A job that runs already when its client hangs up gets its result."""
    engine, gone = Blocks(), threading.Event()
    batcher = serve(engine)
    one = job(1, is_disconnected=gone.is_set)
    batcher.submit(one)
    engine.wait_until_started()
    gone.set()
    engine.let_go()
    assert answered(one) == [1]


def test_a_queue_of_dead_jobs_is_no_batch(serve):
    """Where all that waited were dead, nothing runs and no batch is counted."""
    engine, notes = Echo(), Notes()
    batcher = serve(engine, observer=notes)
    dead = _submit(batcher, 1, is_disconnected=lambda: True)
    batcher.close(10)
    assert isinstance(outcome(dead), Abandoned)
    assert engine.seen() == []
    assert notes.batches == []


# What a model can do wrong.


@pytest.mark.parametrize("error", FAILURES)
def test_a_model_that_raises_fails_its_batch_only(serve, error):
    """Whatever a model raises is its job's 500, and the jobs after it are served."""
    batcher = serve(Raises(error))
    for n in range(3):
        bad = _submit(batcher, Raises.poison)
        with pytest.raises(ModelFailed, match=type(error).__name__) as caught:
            bad.wait()
        assert "secret" not in str(caught.value)
        assert answered(_submit(batcher, n)) == [n]


def test_an_error_with_a_status_reaches_the_client_as_it_is(serve):
    """An error of our own tree, such as the device's memory, keeps its status."""
    error = OutOfDeviceMemory("a batch of 1 rows does not fit")
    batcher = serve(Raises(error))
    with pytest.raises(OutOfDeviceMemory, match="does not fit"):
        _submit(batcher, Raises.poison).wait()
    assert answered(_submit(batcher, 1)) == [1]


def test_a_failed_piece_fails_its_job_and_the_rest_is_not_run(serve):
    """A split job whose first batch fails is answered, and its other rows not run."""
    engine = Raises(ValueError("poison"))
    batcher = serve(engine)
    one = _submit(batcher, Raises.poison, 1, 2, 3, 4, 5)
    behind = _submit(batcher, 9)
    assert answered(behind) == [9]
    assert isinstance(outcome(one), ModelFailed)
    assert engine.seen() == [[Raises.poison, 1, 2, 3], [9]]


@pytest.mark.parametrize(("engine", "text"), WRONG_OUTPUTS)
def test_wrong_outputs_are_an_error_that_names_them(serve, engine, text):
    """Outputs that don't match the rows are an error with both numbers."""
    batcher = serve(engine())
    for _ in range(2):
        with pytest.raises(ModelFailed, match=text):
            _submit(batcher, 1, 2, 3).wait()


def test_only_the_outputs_of_the_signature_come_back(serve):
    """What a model gives beside its signature's outputs reaches nobody."""
    answer = _submit(serve(OutputBeside()), 1, 2, 3).wait()
    assert list(answer.outputs) == ["output"]
    assert answer.outputs["output"].tolist() == [[1], [2], [3]]


def test_failed_batches_are_observed(serve):
    """A batch that fails is counted like any other."""
    notes = Notes()
    batcher = serve(Raises(ValueError("poison")), observer=notes)
    with pytest.raises(ModelFailed):
        _submit(batcher, Raises.poison, 1).wait()
    assert answered(_submit(batcher, 2)) == [2]
    batcher.close(10)
    assert notes.batches == [2, 1]


# What is shown of the queue.


def test_the_rows_that_wait_are_shown(serve):
    """The observer is told of each row that comes, and of none once all have run."""
    engine, notes = Blocks(), Notes()
    batcher = serve(engine, observer=notes)
    _submit_and_block(batcher, engine, 0)
    before = len(notes.waiting)
    rest = [_submit(batcher, n) for n in (1, 2)]
    assert notes.waiting[before:] == [1, 2]
    engine.let_go()
    assert [answered(one) for one in rest] == [[1], [2]]
    assert notes.waiting[-1] == 0


def test_a_slow_request_thread_shows_no_older_number(serve):
    """The number shown last is right even where a request thread is slow to show."""
    engine = Blocks()

    class Slow(Notes):
        def rows_waiting(self, rows):
            if rows:
                engine.started.wait(0.05)
            super().rows_waiting(rows)

    notes = Slow()
    one = _submit(serve(engine, observer=notes), 1)
    engine.let_go()
    assert answered(one) == [1]
    assert notes.waiting[-1] == 0


# How it starts and stops.


def test_start_twice_starts_one_thread(serve):
    """A second start changes nothing."""
    before = threading.active_count()
    batcher = serve(Echo())
    batcher.start()
    assert threading.active_count() == before + 1
    assert answered(_submit(batcher, 1)) == [1]


def test_jobs_before_the_start_are_served_after_it():
    """A job that was submitted before the start is answered after it."""
    batcher = Batcher(executor(Echo(), 4), AT_ONCE, 4, Notes())
    one = _submit(batcher, 1)
    batcher.start()
    assert answered(one) == [1]
    batcher.close(10)


def test_close_finishes_what_was_accepted(serve):
    """At close the jobs that hold are run without holding, then the engine closes."""
    engine = Echo()
    batcher = serve(engine, AN_HOUR)
    jobs = [_submit(batcher, n) for n in (1, 2, 3)]
    batcher.close(10)
    assert [answered(one) for one in jobs] == [[1], [2], [3]]
    assert engine.seen() == [[1, 2, 3]]
    assert engine.closed == 1


def test_a_closed_batcher_refuses(serve):
    """After close a job is refused with Stopping."""
    batcher = serve(Echo())
    batcher.close(10)
    with pytest.raises(Stopping) as refused:
        _submit(batcher, 1)
    assert refused.value.retry_after_s >= 1


def test_close_answers_those_it_can_not_finish(serve, caplog):
    """When the time is up, the hung batch's jobs and those behind it get Stopping."""
    engine = Blocks()
    batcher = serve(engine)
    jobs = [_submit_and_block(batcher, engine, *range(6))]
    jobs += [_submit(batcher, 1), _submit(batcher, 2, width=2)]
    batcher.close(0)
    assert [type(outcome(one)) for one in jobs] == [Stopping] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "model m version 1: stopped with 3 requests unanswered: 503"
    ]


def test_a_hung_engine_is_not_closed_under_its_batch(serve):
    """An engine that still runs when close gives up is closed when it has ended."""
    engine = Blocks()
    batcher = serve(engine)
    _submit_and_block(batcher, engine, 1)
    batcher.close(0)
    assert engine.closed == 0
    engine.let_go()
    batcher._thread.join(10)
    assert engine.closed == 1


def test_the_answer_of_a_hung_batch_comes_too_late(serve):
    """A job that got Stopping keeps it when its batch ends after all."""
    engine = Blocks()
    batcher = serve(engine)
    one = _submit_and_block(batcher, engine, 1)
    batcher.close(0)
    engine.let_go()
    batcher.close(10)
    assert engine.seen() == [[1]]
    assert isinstance(outcome(one), Stopping)


def test_close_twice_is_like_once(serve, caplog):
    """A second close neither fails nor answers nor warns again."""
    engine = Blocks()
    batcher = serve(engine)
    _submit_and_block(batcher, engine, 1)
    batcher.close(0)
    batcher.close(0)
    assert len(caplog.records) == 1


def test_after_close_no_rows_wait(serve):
    """The number that is shown after a close is none, whatever was left."""
    engine, notes = Blocks(), Notes()
    batcher = serve(engine, observer=notes)
    _submit_and_block(batcher, engine, 1)
    _submit(batcher, 2, 3)
    batcher.close(0)
    assert notes.waiting[-1] == 0


def test_close_before_the_start_answers_too():
    """A Batcher that never started answers its jobs at close and closes its engine."""
    engine = Echo()
    batcher = Batcher(executor(engine, 4), AT_ONCE, 4, Notes())
    one = _submit(batcher, 1)
    batcher.close(10)
    assert isinstance(outcome(one), Stopping)
    assert engine.closed == 1
    assert engine.seen() == []


def test_a_start_after_the_close_serves_nobody():
    """A Batcher that is started after its close ends its thread at once."""
    batcher = Batcher(executor(Echo(), 4), AT_ONCE, 4, Notes())
    batcher.close(10)
    batcher.start()
    batcher.close(10)
    with pytest.raises(Stopping):
        _submit(batcher, 1)


# The same without batches.


def _unbatched(engine, observer=None, sizes=()):
    runner = Unbatched(executor(engine, 16, observer, sizes), 16)
    runner.start()
    return runner


def test_unbatched_runs_each_job_by_itself():
    """Without batching each job is one run, answered when submit returns."""
    engine, notes = Echo(), Notes()
    runner = _unbatched(engine, notes)
    jobs = [_submit(runner, 1), _submit(runner, *range(10))]
    assert all(one.is_answered() for one in jobs)
    assert answered(jobs[0]) == [1]
    assert answered(jobs[1]) == list(range(10))
    assert engine.seen() == [[1], list(range(10))]
    assert notes.batches == [1, 10]


def test_unbatched_fills_up_to_the_next_allowed_size():
    """Without batching a request is filled up too, and split at the largest size."""
    engine, notes = Echo(), Notes()
    one = _submit(_unbatched(engine, notes, sizes=(2, 4)), *range(9))
    assert one.wait().batch_rows == 4
    assert answered(_submit(_unbatched(engine, sizes=(2, 4)), 9)) == [9]
    assert engine.seen() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 8], [9, 9]]
    assert notes.batches == [4, 4, 1]


@pytest.mark.parametrize(
    ("fate", "error"),
    [
        pytest.param({"deadline": 0.0}, Late, id="late"),
        pytest.param({"is_disconnected": lambda: True}, Abandoned, id="gone"),
    ],
)
def test_unbatched_drops_what_nobody_waits_for(fate, error):
    """Without batching a late job, and one whose client is gone, are not run either."""
    engine, notes = Echo(), Notes()
    one = _submit(_unbatched(engine, notes), 1, **fate)
    assert isinstance(outcome(one), error)
    assert engine.seen() == []
    assert notes.batches == []


def test_unbatched_drops_the_rest_when_the_client_goes():
    """Without batching a client that goes during the first batch gets no second one."""
    engine = Echo()
    one = job(*range(8), is_disconnected=lambda: bool(engine.batches))
    _unbatched(engine, sizes=(4,)).submit(one)
    assert isinstance(outcome(one), Abandoned)
    assert engine.seen() == [[0, 1, 2, 3]]


def test_unbatched_a_failed_batch_ends_its_job():
    """Without batching the batches behind one that fails are not run."""
    engine = Raises(ValueError("secret"))
    one = _submit(_unbatched(engine, sizes=(4,)), Raises.poison, *range(7))
    assert isinstance(outcome(one), ModelFailed)
    assert len(engine.batches) == 1


def test_unbatched_runs_requests_side_by_side():
    """Two request threads are in the model at once, each with memory of its own."""
    both = threading.Barrier(2)

    class Meets(Echo):
        def run(self, batch, signature_name):
            both.wait(10)
            return super().run(batch, signature_name)

    runner = _unbatched(Meets(), sizes=(2,))
    jobs = [job(1), job(2)]
    threads = [threading.Thread(target=runner.submit, args=(one,)) for one in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answered(one) for one in jobs] == [[1], [2]]


@pytest.mark.parametrize("error", FAILURES)
def test_unbatched_a_model_that_raises_fails_its_job_only(error):
    """Without batching whatever a model raises is its job's 500 too."""
    runner = _unbatched(Raises(error))
    with pytest.raises(ModelFailed, match=type(error).__name__):
        _submit(runner, Raises.poison).wait()
    assert answered(_submit(runner, 1)) == [1]


@pytest.mark.parametrize(("engine", "text"), WRONG_OUTPUTS)
def test_unbatched_wrong_outputs_are_an_error(engine, text):
    """Without batching the outputs are checked too."""
    with pytest.raises(ModelFailed, match=text):
        _submit(_unbatched(engine()), 1, 2, 3).wait()


def test_unbatched_has_a_bound():
    """Without batching a request may have as many rows as a queue would hold."""
    runner = _unbatched(Echo())
    assert answered(_submit(runner, *range(16))) == list(range(16))
    with pytest.raises(TooLarge, match=r"17 rows .* at most 16"):
        _submit(runner, *range(17))


def test_unbatched_refuses_after_close():
    """Without batching a closed runner refuses too, and its engine is closed."""
    engine = Echo()
    runner = _unbatched(engine)
    runner.close(10)
    runner.close(10)
    with pytest.raises(Stopping):
        _submit(runner, 1)
    assert engine.closed >= 1


def test_unbatched_closes_no_engine_that_runs():
    """Without batching close leaves the engine open while a request runs in it."""
    engine = Blocks()
    runner, one = _unbatched(engine), job(1)
    request = threading.Thread(target=runner.submit, args=(one,))
    request.start()
    engine.wait_until_started()
    runner.close(0)
    assert engine.closed == 0
    with pytest.raises(Stopping):
        _submit(runner, 2)
    engine.let_go()
    # Longer than a test may take: the end of the request ends the wait.
    runner.close(600)
    assert engine.closed
    assert answered(one) == [1]
    request.join()


def test_unbatched_the_last_request_closes_the_engine():
    """Without batching an engine that ran when close gave up is closed all the same."""
    engine = Blocks()
    runner = _unbatched(engine)
    request = threading.Thread(target=runner.submit, args=(job(1),))
    request.start()
    engine.wait_until_started()
    runner.close(0)
    engine.let_go()
    request.join()
    assert engine.closed == 1


def test_unbatched_is_stuck_where_no_batch_ends(monkeypatch):
    """Without batching the time without progress begins anew with each batch's end."""
    clock = standing_clock(monkeypatch, "app.batching.unbatched")
    engine = Puppet()
    runner = _unbatched(engine, sizes=(1,))
    assert runner.stuck_s() == 0
    with ThreadPoolExecutor(2) as pool:
        requests = []
        for rows in (1, 2):
            clock.now += 40
            one = job(*range(rows), deadline=math.inf)
            requests.append(pool.submit(runner.submit, one))
            engine.begun()
        assert runner.stuck_s() == 40
        clock.now += 40
        for _ in range(2):
            engine.finish()
        engine.begun()
        wait(requests, return_when=FIRST_COMPLETED)
        assert runner.stuck_s() == 0
        clock.now += 5
        assert runner.stuck_s() == 5
        engine.finish()
    assert runner.stuck_s() == 0


def test_the_rule_hears_of_the_end_before_a_client_is_back(serve):
    """Whoever comes back with its answer comes after the batch that it was in."""
    heard, done = [], threading.Event()

    class Listens(FixedTimeout):
        def arrived(self, rows, now):
            heard.append("arrived")

        def finished(self, rows, now):
            heard.append("finished")

    batcher = serve(Echo(), Listens(0))
    first, second = job(1), job(2)
    second.wake = lambda _: done.set()

    def come_back(_):
        batcher.submit(second)
        heard.append("is back")

    first.wake = come_back
    batcher.submit(first)
    assert done.wait(10)
    assert heard[:4] == ["arrived", "finished", "arrived", "is back"]


def test_time_spent_holding_is_not_a_batch_s():
    """A batch whose rows were held after the last one takes as long as its own run."""
    fake, engine = FakeTime(), Puppet()
    batches = executor(engine, 4, clock=fake.clock)
    batcher = Batcher(batches, AN_HOUR, 4, Notes())
    batcher._queue = JobQueue(16, AN_HOUR, wait=engine.rest)
    batcher.start()
    assert engine.begun() is None
    _submit(batcher, 1)
    for _ in range(3):
        assert engine.begun() is None
        fake.now += 9
        _submit(batcher, 2, 3, 4)
        assert len(engine.begun()) == 4
        _submit(batcher, 1)
        fake.now += 1
        engine.finish()
    assert engine.begun() is None
    assert batches.times.expected_s(4) == 1
    engine.let_go()
    batcher.close(10)


def test_what_lies_between_two_batches_is_the_second_one_s(serve, monkeypatch):
    """Rows that are taken as soon as a batch has run follow it."""
    follows = []
    execute = Executor.execute

    def note(self, pieces, **named):
        follows.append(named["back_to_back"])
        execute(self, pieces, **named)

    monkeypatch.setattr(Executor, "execute", note)
    engine = Blocks()
    batcher = serve(engine)
    _submit_and_block(batcher, engine, 1)
    second = _submit(batcher, 2)
    engine.let_go()
    assert answered(second) == [2]
    assert follows == [False, True]
