"""Admission control: TooLarge, QueueFull, and deadlines that cannot be met."""

import math
import time

import pytest

from app.errors import CannotMeetDeadline, Late, QueueFull, TooLarge
from tests.support.engines import Blocks, Echo, Puppet
from tests.support.jobs import FakeTime, answered, job, submit


def test_request_larger_than_the_queue_is_refused(serve):
    """A job with more rows than the queue's capacity raises TooLarge, with both."""
    with pytest.raises(TooLarge, match=r"17 rows .* holds 16"):
        submit(serve(Echo()), *range(17))


def test_request_as_large_as_the_queue_is_served(serve):
    """A job that fills an empty queue to the last row is served."""
    assert answered(submit(serve(Echo()), *range(16))) == list(range(16))


def test_full_queue_refuses_at_once_and_drains(serve):
    """A job beyond the bound raises QueueFull, and the queued ones are answered."""
    engine = Blocks()
    batcher = serve(engine)
    jobs = [submit(batcher, 0)]
    engine.wait_until_started()
    jobs += [submit(batcher, n) for n in range(16)]
    with pytest.raises(QueueFull, match="16 of at most 16 rows, and 2 more"):
        submit(batcher, 1, 2)
    engine.unblock()
    assert [answered(one) for one in jobs] == [[0], *([n] for n in range(16))]


def _run_one(batcher, engine, fake, seconds, rows=1):
    """Run a job whose batch takes so many seconds."""
    one = submit(batcher, *range(rows))
    engine.begun()
    fake.now += seconds
    engine.finish()
    one.wait()


@pytest.mark.parametrize(
    ("batches_s", "retry_after_s"),
    [
        pytest.param([], 1, id="no batch yet"),
        pytest.param([0.001], 1, id="fast batches"),
        pytest.param([3.0], 15, id="one of 3 s runs and four wait"),
        pytest.param([3.0, 3.0, 3.0], 15, id="steady"),
        pytest.param([3.0, 8.0], 20, id="a slower one counts for a tenth, and margin"),
        pytest.param([2.55], 13, id="rounded up"),
    ],
)
def test_full_queue_computes_retry_after(serve, batches_s, retry_after_s):
    """Retry-After is in how many seconds the queued rows will have run."""
    fake, engine = FakeTime(), Puppet()
    batcher = serve(engine, clock=fake.clock)
    for seconds in batches_s:
        _run_one(batcher, engine, fake, seconds)
    submit(batcher, 0)
    engine.begun()
    submit(batcher, *range(16), deadline=math.inf)
    with pytest.raises(QueueFull) as refused:
        submit(batcher, 1, deadline=math.inf)
    assert refused.value.retry_after_s == retry_after_s


@pytest.fixture(name="fake")
def _fake():
    return FakeTime()


@pytest.fixture(name="busy")
def _busy(serve, fake):
    """Return a Batcher that runs a batch, after one that took 3 s."""
    engine = Puppet()
    batcher = serve(engine, clock=fake.clock)
    _run_one(batcher, engine, fake, 3.0)
    submit(batcher, 1)
    engine.begun()
    return batcher


@pytest.mark.parametrize(
    ("queued", "ran_s", "timeout_s", "refused"),
    [
        pytest.param(0, 0.0, 5.5, True, id="behind the batch that runs"),
        pytest.param(0, 0.0, 7.0, False, id="behind it, with time"),
        pytest.param(0, 2.0, 5.5, False, id="behind one that is nearly done"),
        pytest.param(0, 9.0, 5.5, False, id="behind one that takes long"),
        pytest.param(0, 9.0, 2.5, True, id="behind it, but without time to run"),
        pytest.param(3, 0.0, 7.0, False, id="in the same batch as others"),
        pytest.param(4, 0.0, 7.0, True, id="behind a full batch"),
        pytest.param(4, 0.0, 10.0, False, id="behind a full batch, with time"),
    ],
)
def test_admission_control_refuses_a_deadline_before_the_batch_ends(
    busy, fake, queued, ran_s, timeout_s, refused
):
    """A job whose deadline comes before its batch would end is refused at once."""
    fake.now += ran_s
    for n in range(queued):
        submit(busy, n, deadline=math.inf)
    deadline = time.monotonic() + timeout_s
    if refused:
        with pytest.raises(CannotMeetDeadline, match=r"about \d\.00 s.* is \d\.\d+ s"):
            submit(busy, 9, deadline=deadline)
    else:
        submit(busy, 9, deadline=deadline)


def test_admission_control_expects_the_time_of_the_padded_batch(serve, fake):
    """The expected time of a batch is that of the size to which it is padded."""
    engine = Puppet()
    batcher = serve(engine, sizes=(1, 4), clock=fake.clock)
    for rows in [4, 1] * 30:
        _run_one(batcher, engine, fake, rows, rows)
    submit(batcher, 0)
    engine.begun()
    with pytest.raises(CannotMeetDeadline, match=r"about 5\.0"):
        submit(batcher, 1, 2, deadline=time.monotonic() + 4)


def test_admission_control_computes_retry_after_for_a_deadline(busy):
    """Retry-After is by how many seconds the deadline would be missed, rounded up."""
    with pytest.raises(CannotMeetDeadline) as refused:
        submit(busy, 9, deadline=time.monotonic() + 2.5)
    assert refused.value.retry_after_s == 4


def test_admission_control_counts_other_clients_by_fair_queueing(busy):
    """A client with one row is admitted beside a client with many queued rows."""
    for n in range(12):
        submit(busy, n, deadline=math.inf, client="flood")
    deadline = time.monotonic() + 7
    with pytest.raises(CannotMeetDeadline):
        submit(busy, 1, deadline=deadline, client="flood")
    submit(busy, 1, deadline=deadline, client="polite")


def test_admission_control_reserves_the_response_overhead(busy):
    """A job whose batch would end in time, but not its response, is refused."""
    deadline = time.monotonic() + 7
    busy.submit(job(1, deadline=deadline))
    one = job(1, deadline=deadline)
    one.reserve_s = 2.0
    with pytest.raises(CannotMeetDeadline):
        busy.submit(one)


def test_admission_control_admits_any_deadline_on_an_idle_engine(serve, fake):
    """A job that finds the engine idle is admitted, however long batches took."""
    engine = Puppet()
    batcher = serve(engine, clock=fake.clock)
    for _ in range(2):
        one = submit(batcher, 0, deadline=time.monotonic() + 5)
        engine.begun()
        fake.now += 60
        engine.finish()
        assert answered(one) == [0]


def test_deadline_that_has_passed_is_late(busy):
    """A job that is submitted after its deadline raises Late."""
    with pytest.raises(Late):
        submit(busy, 1, deadline=time.monotonic() - 1)


def test_stuck_time_is_that_of_the_batch_in_the_engine(serve, busy, fake):
    """The time without progress counts from the batch's start; idle, it is 0."""
    fake.now += 40
    assert busy.stuck_s() == 40
    assert serve(Echo()).stuck_s() == 0
