"""JobQueue: its bound, which rows share a batch, and when a batch starts."""

import queue

import numpy as np
import pytest

from app.batching.job_queue import JobQueue
from app.batching.release import FixedTimeout
from app.errors import Abandoned, Late, ModelFailed, QueueFull, Stopping
from tests.support.jobs import FakeTime, job, outcome

AT_ONCE = FixedTimeout(timeout_s=0)
HALF_A_SECOND = FixedTimeout(timeout_s=0.5)


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


def _take(jobs):
    """Take a batch of at most four rows and return their values."""
    return [
        value
        for one, start, stop in jobs.take(FOUR)
        for value in one.inputs["input"][start:stop, 0].tolist()
    ]


def test_job_queue_is_a_standard_library_queue(jobs):
    """JobQueue is a queue.Queue."""
    assert isinstance(jobs, queue.Queue)


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


def test_queue_bound_counts_rows(jobs, fake):
    """A job whose rows exceed the free capacity is refused at once, and adds none."""
    _put(jobs, *range(10))
    _put(jobs, *range(5))
    with pytest.raises(queue.Full):
        _put(jobs, 1, 2)
    assert jobs.qsize() == 15
    _put(jobs, 1)
    assert jobs.qsize() == 16
    assert fake.waits == []


def test_taken_rows_free_capacity(jobs):
    """Rows that went into a batch no longer count, even if their job has more."""
    _put(jobs, *range(16))
    assert _take(jobs) == [0, 1, 2, 3]
    assert jobs.qsize() == 12
    _put(jobs, *range(4))
    assert jobs.qsize() == 16


def test_jobs_are_taken_in_order_of_arrival_and_split_to_fill_a_batch(jobs):
    """A job that does not fit whole fills the batch and continues in the next."""
    _put(jobs, 1)
    _put(jobs, 2, 3)
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
def test_rows_of_another_shape_or_dtype_never_share_a_batch(jobs, other):
    """Rows of another shape or dtype get a batch of their own."""
    _put(jobs, 1)
    _put(jobs, 2, at=1001.0, **other)
    _put(jobs, 3, at=1002.0)
    assert _take(jobs) == [1, 3]
    assert _take(jobs) == [2]


def test_held_row_does_not_block_a_full_batch_of_another_shape(holding, fake):
    """A full batch starts while a single row of another shape is held."""
    _put(holding, 1, at=999.75)
    for n in range(4):
        _put(holding, 10 + n, width=2)
    assert _take(holding) == [10, 11, 12, 13]
    assert fake.waits == []
    assert _take(holding) == [1]
    assert fake.waits == [0.25]


def test_shapes_are_served_round_robin(jobs):
    """Among shapes that may start now the one served longest ago is taken."""
    for n in range(6):
        _put(jobs, n)
    _put(jobs, 10, width=2)
    assert _take(jobs) == [0, 1, 2, 3]
    _put(jobs, 20, width=3)
    assert [_take(jobs) for _ in range(3)] == [[10], [4, 5], [20]]


def test_shapes_of_one_client_take_turns_with_those_of_others(jobs):
    """A client with many shapes goes behind one that was served before it."""
    for width in range(2, 8):
        _put(jobs, width, width=width, client="many")
    _put(jobs, 20, width=20, client="one")
    # Nobody has been served yet, so the first to come is.
    assert [_take(jobs) for _ in range(3)] == [[2], [20], [3]]
    _put(jobs, 30, width=20, client="one")
    assert [_take(jobs) for _ in range(3)] == [[30], [4], [5]]


def test_full_queue_drops_the_newest_job_of_any_shape(fake):
    """Not the newest one of the shape that is served next."""
    jobs = JobQueue(4, AT_ONCE, clock=fake.clock, wait=fake.wait)
    first, *others = [
        _put(jobs, number, at=1000.0 + number, width=width, client="many")
        for number, width in enumerate((1, 2, 3, 2))
    ]
    newest = others.pop()
    _put(jobs, 9, at=1010.0, client="one")
    assert isinstance(outcome(newest), QueueFull)
    assert not any(each.is_answered() for each in (first, *others))


def test_overdue_batch_has_no_priority_over_a_full_one(holding):
    """Full and overdue batches start in the order in which their shapes were served."""
    for n in range(4):
        _put(holding, n, at=998.0)
    _put(holding, 9, at=999.0, width=2)
    for n in range(4):
        _put(holding, 10 + n, at=1000.0, width=3)
    assert [_take(holding) for _ in range(3)] == [[0, 1, 2, 3], [9], [10, 11, 12, 13]]


def test_release_rule_sees_arrivals_and_finished_batches(fake):
    """The rule gets each job's rows and time before it decides, each end once."""
    calls = []

    class Records(FixedTimeout):
        def arrived(self, arrivals):
            if arrivals:
                calls.append(("arrived", *arrivals))

        def finished(self, rows, now):
            calls.append(("finished", rows, now))

    jobs = JobQueue(16, Records(0), clock=fake.clock, wait=fake.wait)
    _put(jobs, 1, 2, at=999.0)
    _put(jobs, 3, at=999.5)
    _take(jobs)
    fake.at(1000.5, lambda: _put(jobs, 4, at=1000.5))
    _take(jobs)
    _put(jobs, 5, at=1000.75)
    fake.now = 1001.0
    jobs.finished()
    _put(jobs, 6, at=1001.0)
    _take(jobs)
    assert calls == [
        ("arrived", (2, 999.0), (1, 999.5)),
        *(("finished", 3, 1000.0), ("arrived", (1, 1000.5))),
        *(("arrived", (1, 1000.75)), ("finished", 1, 1001.0)),
        ("arrived", (1, 1001.0)),
    ]


def test_take_blocks_on_an_empty_queue(jobs, fake):
    """The batching thread blocks without a timeout until a job arrives."""
    fake.at(1007.0, lambda: _put(jobs, 1, at=1007.0))
    assert _take(jobs) == [1]
    assert fake.waits == [None]


def test_batch_taken_without_waiting_is_back_to_back(holding, fake):
    """A batch is back to back unless `take` waited for rows or held some."""
    back_to_back = []

    def take():
        holding.take(FOUR)
        back_to_back.append(holding.back_to_back)

    _put(holding, *range(12))
    for _ in range(3):
        take()
    fake.at(1001.0, lambda: _put(holding, *range(4), at=1001.0))
    take()
    for _ in range(2):
        _put(holding, 1, at=1001.0)
        take()
    assert back_to_back == [False, True, True, False, False, True]


def test_batch_after_an_empty_batch_is_back_to_back_with_the_one_before(jobs, fake):
    """A batch of dead jobs did not run; waiting for its jobs counts all the same."""
    back_to_back = []
    for wait in (False, True):
        _put(jobs, 1)
        jobs.take(FOUR)
        if wait:
            fake.at(1001.0, lambda: _put(jobs, 2, is_abandoned=True))
        else:
            _put(jobs, 2, is_abandoned=True)
        assert jobs.take(FOUR) == []
        _put(jobs, 3)
        jobs.take(FOUR)
        back_to_back.append(jobs.back_to_back)
    assert back_to_back == [True, False]


@pytest.mark.parametrize(
    ("at", "waits"),
    [
        pytest.param(1000.0, [0.5], id="just arrived"),
        pytest.param(999.625, [0.125], id="some of the timeout is over"),
        pytest.param(990.0, [], id="older than the timeout"),
    ],
)
def test_batch_timeout_counts_from_enqueueing(holding, fake, at, waits):
    """A row is held for the rest of the timeout, however it spent the time before."""
    _put(holding, 1, at=at)
    assert _take(holding) == [1]
    assert fake.waits == waits


def test_rows_that_arrive_during_a_hold_do_not_prolong_it(holding, fake):
    """Rows that arrive while a batch is held join it, and it still starts on time.

    Nor do they wake the batching thread.
    """
    _put(holding, 1)
    fake.at(1000.25, lambda: _put(holding, 2, at=1000.25))
    fake.at(1000.375, lambda: _put(holding, 3, at=1000.375))
    assert _take(holding) == [1, 2, 3]
    assert fake.waits == [0.5]
    assert fake.now == 1000.5


def test_full_batch_ends_the_hold(holding, fake):
    """The row that fills the batch starts it, whatever is left of the timeout."""
    _put(holding, 1)
    fake.at(1000.25, lambda: _put(holding, 2, 3, 4, at=1000.25))
    assert _take(holding) == [1, 2, 3, 4]
    assert fake.now == 1000.25


class Awaits(FixedTimeout):
    """Holds half a second, or until so many more rows have come."""

    def __init__(self, rows):
        super().__init__(0.5)
        self.rows = rows
        self.arrivals = []

    def arrived(self, arrivals):
        self.arrivals += arrivals

    def hold_s(self, rows, oldest_at, now):
        is_over = rows > self.rows
        return 0.0 if is_over else super().hold_s(rows, oldest_at, now)

    def rows_to_await(self):
        return self.rows


def test_rows_that_the_release_rule_awaits_end_the_hold(fake):
    """The batching thread wakes once for all of them, and the rule knows each."""
    rule = Awaits(2)
    jobs = JobQueue(16, rule, clock=fake.clock, wait=fake.wait)
    _put(jobs, 1)
    for at, value in ((1000.125, 2), (1000.25, 3), (1000.375, 4)):
        fake.at(at, lambda at=at, value=value: _put(jobs, value, at=at))
    assert _take(jobs) == [1, 2, 3]
    assert fake.waits == [0.5]
    assert fake.now == 1000.25
    assert rule.arrivals == [(1, 1000.0), (1, 1000.125), (1, 1000.25)]


def test_arrivals_wake_the_batching_thread_once(jobs, fake):
    """Rows that arrive before it has the lock again do not notify it once more."""
    notified = []

    def burst():
        for n in range(3):
            _put(jobs, n)
            notified.append(fake.notified)

    fake.at(1000.5, burst)
    assert _take(jobs) == [0, 1, 2]
    assert notified == [1, 1, 1]


def test_full_batch_of_another_shape_ends_the_hold(holding, fake):
    """It starts while the held row of the first shape still waits."""
    _put(holding, 1)
    fake.at(1000.125, lambda: _put(holding, 2, at=1000.125, width=2))
    fake.at(1000.25, lambda: _put(holding, 3, 4, 5, at=1000.25, width=2))
    assert _take(holding) == [2, 3, 4, 5]
    assert fake.now == 1000.25
    assert _take(holding) == [1]
    assert fake.now == 1000.5


def test_row_that_may_not_share_a_batch_ends_the_hold_of_another_shape(holding, fake):
    """Where a shape's batches have one row, the first one is full."""
    held = _put(holding, 1)
    fake.at(1000.125, lambda: _put(holding, 2, at=1000.125, width=2))
    batch = holding.take(lambda key: 4 if key == held.key else 1)
    assert [each.job.key == held.key for each in batch] == [False]
    assert fake.now == 1000.125


def test_new_shapes_of_a_client_do_not_overtake_its_waiting_ones(jobs):
    """However many new shapes come, the rest of an older one is served in turn."""
    _put(jobs, *range(9))
    _put(jobs, 20, width=2)
    taken = []
    for width in range(3, 8):
        taken.append(_take(jobs))
        _put(jobs, 10 * width, width=width)
    assert taken == [[0, 1, 2, 3], [20], [4, 5, 6, 7], [30], [40]]
    assert _take(jobs) == [8]


def test_overload_is_shared_between_clients_and_then_all_is_taken(jobs):
    """More rows than a batch takes are divided; what fits goes as it came."""
    for n in range(7):
        _put(jobs, n, client="flood")
    _put(jobs, 10, 11, client="polite")
    assert _take(jobs) == [0, 1, 10, 11]
    _put(jobs, 12, client="polite")
    assert _take(jobs) == [2, 3, 4, 12]
    _put(jobs, 13, client="polite")
    assert _take(jobs) == [5, 6, 13]
    assert jobs.qsize() == 0


def test_rule_learns_of_jobs_that_left_a_full_queue_before_it_looked(fake):
    """Rows that were dropped again have arrived all the same."""
    rule = Awaits(2)
    jobs = JobQueue(2, rule, clock=fake.clock, wait=fake.wait)
    _put(jobs, 1, is_abandoned=True)
    _put(jobs, 2)
    _put(jobs, 3)
    fake.now = 1000.5
    assert _take(jobs) == [2, 3]
    assert rule.arrivals == [(1, 1000.0)] * 3


def test_rest_of_a_split_job_keeps_its_age(holding, fake):
    """The rest of a split job is held no longer than the job's own timeout."""
    _put(holding, 1, 2, 3, 4, 5)
    assert _take(holding) == [1, 2, 3, 4]
    fake.now = 1000.375
    assert _take(holding) == [5]
    assert fake.waits == [0.125]


@pytest.mark.parametrize(
    ("fate", "error"),
    [
        pytest.param({"deadline": 1001.0}, Late, id="deadline"),
        pytest.param({"is_abandoned": True}, Abandoned, id="disconnect"),
    ],
)
def test_job_past_its_deadline_or_disconnected_is_not_taken(jobs, fake, fate, error):
    """Late and abandoned jobs fail, free their capacity and leave no gap in a batch."""
    dead = [_put(jobs, n, **fate) for n in range(3)]
    _put(jobs, *range(10, 15))
    fake.now = 1001.0
    assert _take(jobs) == [10, 11, 12, 13]
    assert [type(outcome(each)) for each in dead] == [error] * 3
    assert jobs.qsize() == 1


def test_only_dead_jobs_make_an_empty_batch(jobs):
    """Take returns an empty list if all queued jobs are dead."""
    _put(jobs, 1, 2, is_abandoned=True)
    assert jobs.take(FOUR) == []
    assert jobs.qsize() == 0


def test_rest_of_a_failed_job_is_not_taken(jobs):
    """A job that failed in its first batch has no rows in a second one."""
    one = _put(jobs, 1, 2, 3, 4, 5, 6)
    assert _take(jobs) == [1, 2, 3, 4]
    one.fail(ModelFailed("the first batch failed"))
    _put(jobs, 7)
    assert _take(jobs) == [7]
    assert jobs.qsize() == 0


def test_closed_queue_refuses_with_stopping(jobs):
    """A closed queue raises Stopping, even when it is full."""
    _put(jobs, *range(16))
    jobs.close()
    with pytest.raises(Stopping):
        _put(jobs, 1)


def test_closed_queue_drains_without_holding(holding, fake):
    """After close the queued rows are taken at once, and then take returns None."""
    _put(holding, *range(5))
    _put(holding, 9)
    holding.close()
    assert _take(holding) == [0, 1, 2, 3]
    assert _take(holding) == [4, 9]
    assert holding.take(FOUR) is None
    assert fake.waits == []


def test_close_ends_a_hold(holding, fake):
    """A batch that is held when the queue is closed starts then."""
    _put(holding, 1)
    fake.at(1000.25, holding.close)
    assert _take(holding) == [1]
    assert fake.now == 1000.25


def test_close_ends_the_wait_for_a_job(jobs, fake):
    """Take returns None if the queue is closed while it waits for a job."""
    fake.at(1001.0, jobs.close)
    assert jobs.take(FOUR) is None


def test_clear_returns_each_unanswered_job_once(jobs):
    """Clear empties the queue and returns queued, split and running jobs."""
    split, other = _put(jobs, 1, 2, 3, 4, 5, 6), _put(jobs, 7, width=2)
    failed = _put(jobs, 8)
    failed.fail(ModelFailed("already"))
    _take(jobs)
    assert set(jobs.clear()) == {split, other}
    assert jobs.qsize() == 0


def test_clear_returns_the_running_batch_until_the_next_take(jobs):
    """From the moment a batch is taken until the next take, clear returns its jobs."""
    one = _put(jobs, 1)
    _take(jobs)
    assert jobs.clear() == [one]
    jobs.close()
    assert jobs.take(FOUR) is None
    assert jobs.clear() == []
