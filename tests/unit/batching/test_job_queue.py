"""The bounded queue: who gets in, who shares a batch, and when it starts."""

import queue
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from app.batching.job_queue import JobQueue
from app.batching.release import FixedTimeout
from app.errors import Abandoned, Late, ModelFailed, Stopping
from tests.support.jobs import FakeTime, job, outcome

AT_ONCE = FixedTimeout(timeout_s=0)
HALF_A_SECOND = FixedTimeout(timeout_s=0.5)
ROOT = Path(__file__).parents[3]
# Runs 4 request threads against one batching thread, all of them patched.
GEVENT = """
from gevent import monkey
monkey.patch_all()
import threading
from app.batching.batcher import Batcher
from app.batching.job_queue import JobQueue
from app.batching.release import FixedTimeout
from tests.support.engines import Echo
from tests.support.jobs import Notes, answered, executor, job

assert issubclass(JobQueue, monkey.get_original("queue", "Queue"))
batcher = Batcher(executor(Echo(), 4), FixedTimeout(0), 4, Notes())
batcher.start()
answers = []

def request(thread):
    for number in range(5):
        one = job(10 * thread + number)
        batcher.submit(one)
        answers.extend(answered(one))

threads = [threading.Thread(target=request, args=[number]) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
batcher.close(10)
print(sorted(answers))
"""


def FOUR(key):
    return 4


@pytest.fixture(name="fake")
def _fake():
    return FakeTime()


@pytest.fixture(name="jobs")
def _jobs(fake):
    return JobQueue(16, AT_ONCE, clock=fake.clock, wait=fake.wait)


@pytest.fixture(name="holding")
def _holding(fake):
    return JobQueue(16, HALF_A_SECOND, clock=fake.clock, wait=fake.wait)


def _put(jobs, *values, at=1000.0, deadline=2000.0, **rest):
    one = job(*values, deadline=deadline, **rest)
    one.enqueued_at = at
    jobs.put_nowait(one)
    return one


def _rows(pieces):
    """The values of the rows in a batch."""
    return [
        value
        for one, start, stop in pieces
        for value in one.inputs["input"][start:stop, 0].tolist()
    ]


def _take(jobs, max_batch_size=4):
    return _rows(jobs.take(lambda key: max_batch_size))


def test_job_queue_is_a_standard_library_queue(jobs):
    """JobQueue is a queue.Queue."""
    assert isinstance(jobs, queue.Queue)


@pytest.mark.skipif(find_spec("gevent") is None, reason="gevent is not installed")
def test_gevent_monkey_patching_keeps_the_standard_library_queue():
    """After monkey patching JobQueue is no gevent queue, and requests are answered."""
    program = [sys.executable, "-c", GEVENT]
    ran = subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True)
    answers = [float(10 * thread + n) for thread in range(4) for n in range(5)]
    assert ran.stdout == f"{answers}\n"


def test_put_on_a_full_queue_never_blocks(jobs, monkeypatch):
    """A put that may block raises queue.Full at once as well."""
    monkeypatch.setattr(jobs.not_full, "wait", lambda *_: pytest.fail("blocked"))
    _put(jobs, *range(16))
    with pytest.raises(queue.Full):
        jobs.put(job(16))


def test_get_raises_and_leaves_the_job(jobs):
    """A job cannot be removed by get, only in a batch by take."""
    _put(jobs, 1)
    with pytest.raises(NotImplementedError):
        jobs.get()
    assert _take(jobs) == [1]


def test_a_full_queue_refuses_at_once(jobs, fake):
    """A queue whose rows are all taken refuses one more row without waiting."""
    for n in range(16):
        _put(jobs, n)
    with pytest.raises(queue.Full):
        _put(jobs, 16)
    assert fake.waits == []


def test_the_bound_counts_rows(jobs):
    """Two jobs fill the queue when their rows do, and a refused job leaves none."""
    _put(jobs, *range(10))
    _put(jobs, *range(5))
    with pytest.raises(queue.Full):
        _put(jobs, 1, 2)
    assert jobs.qsize() == 15
    _put(jobs, 1)
    assert jobs.qsize() == 16


def test_rows_that_are_taken_make_room(jobs):
    """Rows that went into a batch no longer count, even if their job has more."""
    _put(jobs, *range(16))
    assert _take(jobs) == [0, 1, 2, 3]
    assert jobs.qsize() == 12
    _put(jobs, *range(4))
    assert jobs.qsize() == 16


def test_jobs_leave_in_order_of_arrival(jobs):
    """Jobs of one key are taken in the order in which they came."""
    for n in range(6):
        _put(jobs, n)
    assert _take(jobs) == [0, 1, 2, 3]
    assert _take(jobs) == [4, 5]


def test_a_job_is_split_to_fill_a_batch(jobs):
    """A job that does not fit whole fills what is left and goes on in the next."""
    _put(jobs, 1, 2, 3)
    _put(jobs, 4, 5, 6, 7, 8, 9)
    _put(jobs, 10)
    assert _take(jobs) == [1, 2, 3, 4]
    assert _take(jobs) == [5, 6, 7, 8]
    assert _take(jobs) == [9, 10]
    assert jobs.qsize() == 0


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"width": 2}, id="shape"),
        pytest.param({"dtype": np.float64}, id="dtype"),
    ],
)
def test_different_rows_never_share_a_batch(jobs, other):
    """Rows of another shape or dtype get a batch of their own."""
    _put(jobs, 1)
    _put(jobs, 2, at=1001.0, **other)
    _put(jobs, 3, at=1002.0)
    assert _take(jobs) == [1, 3]
    assert _take(jobs) == [2]


def test_a_row_of_another_shape_blocks_nobody(holding, fake):
    """A lone row that holds does not keep a full line of another shape waiting."""
    _put(holding, 1, at=999.75)
    for n in range(4):
        _put(holding, 10 + n, width=2)
    assert _take(holding) == [10, 11, 12, 13]
    assert fake.waits == []
    assert _take(holding) == [1]
    assert fake.waits == [0.25]


def test_lines_are_served_in_turn(jobs):
    """Among lines that may start now the one served longest ago is taken."""
    for n in range(6):
        _put(jobs, n)
    _put(jobs, 10, width=2)
    assert _take(jobs) == [0, 1, 2, 3]
    _put(jobs, 20, width=3)
    assert [_take(jobs) for _ in range(3)] == [[10], [4, 5], [20]]


def test_being_overdue_counts_no_more_than_being_full(holding):
    """A full line goes before an overdue one whose oldest job is younger."""
    for n in range(4):
        _put(holding, n, at=998.0)
    _put(holding, 9, at=999.0, width=2)
    assert _take(holding) == [0, 1, 2, 3]
    assert _take(holding) == [9]


def test_a_line_that_is_always_full_starves_nobody(holding, fake):
    """A single old row goes before the younger rows of a line that stays full."""
    _put(holding, 1, at=999.0)
    for n in range(8):
        _put(holding, 10 + n, at=1000.0, width=2)
    assert _take(holding) == [1]
    assert _take(holding) == [10, 11, 12, 13]


def test_the_rule_hears_of_arrivals_and_of_finished_batches(fake):
    """The rule is told of each job's rows when they come, and of each batch's end."""
    heard = []

    class Listens(FixedTimeout):
        def arrived(self, rows, now):
            heard.append(("arrived", rows, now))

        def finished(self, rows, now):
            heard.append(("finished", rows, now))

    jobs = JobQueue(16, Listens(0), clock=fake.clock, wait=fake.wait)
    _put(jobs, 1, 2)
    _put(jobs, 3)
    _take(jobs)
    fake.at(1000.5, lambda: _put(jobs, 4))
    _take(jobs)
    jobs.finished()
    _put(jobs, 5)
    _take(jobs)
    assert heard == [
        *(("arrived", 2, 1000.0), ("arrived", 1, 1000.0)),
        *(("finished", 3, 1000.0), ("arrived", 1, 1000.5)),
        *(("finished", 1, 1000.5), ("arrived", 1, 1000.5)),
    ]


def test_an_empty_queue_blocks_until_a_job_comes(jobs, fake):
    """A taker blocks without a timeout while nothing waits."""
    fake.at(1007.0, lambda: _put(jobs, 1, at=1007.0))
    assert _take(jobs) == [1]
    assert fake.waits == [None]


def test_a_batch_follows_where_nothing_was_waited_for(holding, fake):
    """A batch follows the last one unless the taker waited for rows, or held some."""
    follows = []

    def take():
        holding.take(FOUR)
        follows.append(holding.back_to_back)

    _put(holding, *range(12))
    for _ in range(3):
        take()
    fake.at(1001.0, lambda: _put(holding, *range(4), at=1001.0))
    take()
    _put(holding, 1, at=1001.0)
    take()
    _put(holding, 1, at=1001.0)
    take()
    assert follows == [False, True, True, False, False, True]


def test_nothing_follows_a_batch_of_dead_jobs(jobs, fake):
    """Where all that waited were dead, the next batch follows the one before them."""
    follows = []
    for wait in (False, True):
        _put(jobs, 1)
        jobs.take(FOUR)
        if wait:
            fake.at(1001.0, lambda: _put(jobs, 2, is_disconnected=lambda: True))
        else:
            _put(jobs, 2, is_disconnected=lambda: True)
        assert jobs.take(FOUR) == []
        _put(jobs, 3)
        jobs.take(FOUR)
        follows.append(jobs.back_to_back)
    assert follows == [True, False]


def test_adaptive_takes_what_is_there(jobs, fake):
    """Under the adaptive rule a taker waits for nobody."""
    _put(jobs, 1)
    assert _take(jobs) == [1]
    assert fake.waits == []


def test_the_age_counts_from_enqueueing(holding, fake):
    """A row that was old before the taker came waits only for the rest."""
    _put(holding, 1, at=999.625)
    assert _take(holding) == [1]
    assert fake.waits == [0.125]
    assert fake.now == 1000.125


def test_a_row_older_than_the_timeout_is_taken_at_once(holding, fake):
    """A row that waited its time behind a running batch does not wait again."""
    _put(holding, 1, at=990.0)
    assert _take(holding) == [1]
    assert fake.waits == []


def test_newcomers_join_and_do_not_prolong_the_hold(holding, fake):
    """Rows that come while a batch holds join it, and it still starts on time."""
    _put(holding, 1)
    fake.at(1000.25, lambda: _put(holding, 2, at=1000.25))
    fake.at(1000.375, lambda: _put(holding, 3, at=1000.375))
    assert _take(holding) == [1, 2, 3]
    assert fake.waits == [0.5, 0.25, 0.125]
    assert fake.now == 1000.5


def test_a_full_batch_ends_the_hold(holding, fake):
    """The row that fills the batch starts it, whatever is left of the timeout."""
    _put(holding, 1)
    fake.at(1000.25, lambda: _put(holding, 2, 3, 4, at=1000.25))
    assert _take(holding) == [1, 2, 3, 4]
    assert fake.now == 1000.25


def test_the_rest_of_a_split_job_keeps_its_age(holding, fake):
    """What is left of a split job holds no longer than the job's own timeout."""
    _put(holding, 1, 2, 3, 4, 5)
    assert _take(holding) == [1, 2, 3, 4]
    fake.now = 1000.375
    assert _take(holding) == [5]
    assert fake.waits == [0.125]


def test_a_late_job_is_answered_and_not_taken(jobs, fake):
    """A job whose deadline passed in the queue is failed and its row not run."""
    late = _put(jobs, 1, deadline=1001.0)
    _put(jobs, 2)
    fake.now = 1001.0
    assert _take(jobs) == [2]
    assert isinstance(outcome(late), Late)


def test_an_abandoned_job_is_answered_and_not_taken(jobs):
    """A job whose client went away is failed and its row not run."""
    gone = _put(jobs, 1, is_disconnected=lambda: True)
    _put(jobs, 2)
    assert _take(jobs) == [2]
    assert isinstance(outcome(gone), Abandoned)


def test_the_dead_free_their_room(jobs):
    """Dropped rows no longer count, and live ones behind them fill the batch."""
    for n in range(3):
        _put(jobs, n, is_disconnected=lambda: True)
    _put(jobs, *range(10, 15))
    assert _take(jobs) == [10, 11, 12, 13]
    assert jobs.qsize() == 1


def test_only_dead_jobs_make_an_empty_batch(jobs):
    """A taker gets an empty list where all that waited were dead."""
    _put(jobs, 1, 2, is_disconnected=lambda: True)
    assert jobs.take(FOUR) == []
    assert jobs.qsize() == 0


def test_the_rest_of_an_answered_job_is_not_taken(jobs):
    """A job that failed in its first batch gives no rows to a second one."""
    one = _put(jobs, 1, 2, 3, 4, 5, 6)
    assert _take(jobs) == [1, 2, 3, 4]
    one.fail(ModelFailed("the first batch failed"))
    _put(jobs, 7)
    assert _take(jobs) == [7]
    assert jobs.qsize() == 0


def test_a_closed_queue_refuses(jobs):
    """A closed queue says that the server stops, even when it is full."""
    _put(jobs, *range(16))
    jobs.close()
    with pytest.raises(Stopping):
        _put(jobs, 1)


def test_a_closed_queue_lets_the_rest_out_without_holding(holding, fake):
    """After close what waits is taken at once, and then there is nothing."""
    _put(holding, *range(5))
    _put(holding, 9)
    holding.close()
    assert _take(holding) == [0, 1, 2, 3]
    assert _take(holding) == [4, 9]
    assert holding.take(FOUR) is None
    assert fake.waits == []


def test_close_ends_a_hold(holding, fake):
    """A batch that holds when the queue is closed starts then."""
    _put(holding, 1)
    fake.at(1000.25, holding.close)
    assert _take(holding) == [1]
    assert fake.now == 1000.25


def test_close_ends_the_wait_for_a_job(jobs, fake):
    """A taker that waits at an empty queue goes home when it is closed."""
    fake.at(1001.0, jobs.close)
    assert jobs.take(FOUR) is None


def test_clear_gives_back_what_waits(jobs):
    """Clear empties the queue and gives each unanswered job back once."""
    split, other = _put(jobs, 1, 2, 3, 4, 5, 6), _put(jobs, 7, width=2)
    answered = _put(jobs, 8)
    answered.fail(ModelFailed("already"))
    _take(jobs)
    assert set(jobs.clear()) == {split, other}
    assert jobs.qsize() == 0


def test_clear_gives_back_the_batch_that_runs(jobs):
    """From the moment a batch is taken until the next take, clear knows its jobs."""
    one = _put(jobs, 1)
    _take(jobs)
    assert jobs.clear() == [one]
    jobs.close()
    assert jobs.take(FOUR) is None
    assert jobs.clear() == []
