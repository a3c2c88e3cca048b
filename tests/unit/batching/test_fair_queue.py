"""Fair queueing between clients: in a batch, in a full queue, in wait estimates."""

import queue
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.fair_queue import Turns, max_min_shares
from app.batching.job import Job
from app.batching.job_queue import JobQueue
from app.batching.release import FixedTimeout
from app.errors import QueueFull
from tests.support.jobs import job, outcome

AT_ONCE = FixedTimeout(0)


def _fair_queue(**rows):
    """Return a queue with one job for each client, of so many rows, in this order."""
    made = JobQueue(1000, AT_ONCE)
    for client, count in rows.items():
        made.put(job(*range(count), client=client))
    return made


def _take(jobs, max_rows):
    return jobs.take(lambda key: max_rows)


def _shares(slices):
    return {each.job.client: each.stop - each.start for each in slices}


@pytest.mark.parametrize(
    ("rows", "max_rows", "shares"),
    [
        pytest.param({"a": 9, "b": 9}, 4, {"a": 2, "b": 2}, id="even"),
        pytest.param({"a": 99, "b": 1}, 4, {"a": 3, "b": 1}, id="unneeded share"),
        pytest.param({"a": 9, "b": 1, "c": 9}, 7, {"a": 3, "b": 1, "c": 3}, id="three"),
        pytest.param({"a": 9, "b": 9}, 5, {"a": 3, "b": 2}, id="odd"),
        pytest.param({"a": 2, "b": 1}, 4, {"a": 2, "b": 1}, id="all fit"),
        pytest.param({"a": 1, "b": 1, "c": 1}, 2, {"a": 1, "b": 1}, id="more clients"),
    ],
)
def test_fair_queueing_divides_a_batch_evenly(rows, max_rows, shares):
    """Clients get equal shares of a batch; what one does not need goes to others."""
    assert _shares(_take(_fair_queue(**rows), max_rows)) == shares


def test_fair_queueing_continues_a_long_job_in_the_next_batches():
    """A long job's rows go into batch after batch, each once, in order."""
    jobs = _fair_queue(a=10, b=2)
    spans = []
    while jobs.qsize():
        spans += [s[1:] for s in _take(jobs, 4) if s.job.client == "a"]
    assert spans == [(0, 2), (2, 6), (6, 10)]


def test_fair_queueing_serves_clients_round_robin():
    """With more clients than a batch has rows each is served before any is twice."""
    jobs = _fair_queue(a=3, b=3, c=3)
    taken = [
        each.job.client
        for _ in range(3)
        for each in _take(jobs, 2)
        for _ in range(each.stop - each.start)
    ]
    assert taken == ["a", "b", "c", "a", "b", "c"]


@given(
    rows=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    max_rows=st.integers(1, 16),
)
def test_fair_queueing_is_max_min_fair(rows, max_rows):
    """A batch is full or takes all; shares that are cut differ by at most one row."""
    jobs = _fair_queue(**{f"client {n}": count for n, count in enumerate(rows)})
    shares = _shares(_take(jobs, max_rows))
    assert sum(shares.values()) == min(max_rows, sum(rows))
    most = max(shares.values())
    for n, count in enumerate(rows):
        got = shares.get(f"client {n}", 0)
        assert got == count or got >= most - 1
    assert jobs.qsize() == sum(rows) - sum(shares.values())


def test_dropping_dead_jobs_compares_no_job_with_another():
    """Dropping dead jobs takes linear time: it compares no job with another."""
    compared = []

    class Compared(Job):
        __hash__ = Job.__hash__

        def __eq__(self, other):
            compared.append(other)
            return self is other

    rows = {"input": np.zeros((1, 1), np.float32)}
    made = [Compared(rows, deadline=1000.0 + n % 2) for n in range(8)]
    jobs = JobQueue(8, AT_ONCE, clock=lambda: 1000.0)
    for one in made:
        jobs.put(one)
    # Into the full queue.
    jobs.put(Compared(rows, deadline=1001.0))
    assert jobs.qsize() == 5
    assert [one.is_answered() for one in made] == [True, False] * 4
    assert not compared


# A full queue.


def _queue(*jobs):
    made = JobQueue(8, AT_ONCE)
    for one in jobs:
        made.put_nowait(one)
    return made


def test_full_queue_evicts_the_newest_job_of_the_client_with_most_rows():
    """The evicted job fails with QueueFull and a Retry-After."""
    flood = [job(n, client="flood") for n in range(8)]
    jobs = _queue(*flood)
    jobs.put_nowait(job(1, client="polite"))
    assert [one.is_answered() for one in flood] == [False] * 7 + [True]
    answer = outcome(flood[7])
    assert isinstance(answer, QueueFull)
    assert answer.retry_after_s >= 1
    assert jobs.qsize() == 8


def test_full_queue_evicts_no_client_below_an_even_share():
    """Clients with an even share of a full queue are refused; others still evict."""
    jobs = _queue(*(job(n, client="flood") for n in range(8)))
    for n in range(4):
        jobs.put_nowait(job(n, client="polite"))
    for client in ("polite", "flood"):
        with pytest.raises(queue.Full):
            jobs.put_nowait(job(5, client=client))
    jobs.put_nowait(job(1, client="a third one"))


def test_full_queue_evicts_nothing_for_a_job_that_is_refused():
    """A job that does not fit even after evictions evicts no other."""
    flood = [job(n, client="flood") for n in range(5)]
    jobs = _queue(*flood, *(job(n, client="polite") for n in range(3)))
    with pytest.raises(queue.Full):
        jobs.put_nowait(job(*range(4), client="a third one"))
    assert not any(one.is_answered() for one in flood)
    assert jobs.qsize() == 8


def test_full_queue_does_not_evict_a_job_that_has_begun():
    """A job of which rows have run is finished."""
    large = job(*range(9), client="flood")
    jobs = JobQueue(9, AT_ONCE)
    jobs.put_nowait(large)
    jobs.take(lambda key: 1)
    jobs.put_nowait(job(1, client="polite"))
    with pytest.raises(queue.Full):
        jobs.put_nowait(job(1, client="polite"))
    assert not large.is_answered()


def test_full_queue_drops_disconnected_jobs_before_it_evicts():
    """A full queue drops jobs whose client disconnected, and then evicts no other."""
    first = job(1, client="first", is_abandoned=True)
    flood = [job(n, client="flood") for n in range(7)]
    jobs = _queue(first, *flood)
    jobs.put_nowait(job(1, client="polite"))
    assert first.is_answered()
    assert not any(one.is_answered() for one in flood)


def test_full_queue_that_drops_dead_jobs_and_refuses_reports_its_rows():
    """The number of queued rows is reported without dead jobs after a refusal, too."""
    reported = []
    jobs = JobQueue(2, AT_ONCE, on_change=reported.append)
    jobs.put_nowait(job(1, is_abandoned=True))
    jobs.put_nowait(job(2))
    with pytest.raises(queue.Full):
        jobs.put_nowait(job(3, 4))
    assert reported == [1, 2, 1]


def test_full_queue_counts_a_client_s_rows_of_all_shapes():
    """A client that floods the queue with rows of several shapes is evicted as well."""
    flood = [job(n, width=1 + n % 2, client="flood") for n in range(8)]
    jobs = _queue(*flood)
    jobs.put_nowait(job(1, dtype=np.float64, client="polite"))
    assert sum(one.is_answered() for one in flood) == 1
    assert jobs.qsize() == 8


@pytest.mark.parametrize("width", [1, 2], ids=["one shape", "two shapes"])
def test_rows_ahead_counts_each_other_client_up_to_the_own_share(width):
    """A client waits for its own rows, and for as many of each other client."""
    flood = job(*range(5), client="flood")
    jobs = _queue(flood, job(1, 2, width=width, client="other"))
    assert jobs.rows_ahead(job(1, client="polite")) == 2
    assert jobs.rows_ahead(job(1, 2, 3, client="polite")) == 5
    assert jobs.rows_ahead(job(1, client="other")) == 5
    assert jobs.rows_ahead(job(1, client="flood")) == 7


def test_rows_of_clients_are_those_of_a_plain_count():
    """The queue's rows, and those ahead of a job, are those of a dictionary of rows."""
    chance = random.Random(1)
    jobs, plain = JobQueue(1000, AT_ONCE), Counter()
    for _ in range(300):
        for _ in range(chance.randint(1, 8)):
            client, rows = chance.choice("abcdef"), chance.randint(1, 5)
            width = chance.randint(1, 2)
            jobs.put(job(*range(rows), width=width, client=client))
            plain[client] += rows
        limit = chance.randint(1, 40)
        for one, start, stop in jobs.take(lambda key, limit=limit: limit):
            plain[one.client] -= stop - start
        assert jobs.qsize() == plain.total()
        share = plain["a"] + 3
        ahead = sum(min(rows, share) for rows in plain.values())
        assert jobs.rows_ahead(job(1, 2, 3, client="a")) == ahead


def test_shares_are_whole_rows_and_the_rest_goes_to_the_first_clients():
    """No row of a batch is left free while a client has one."""
    rows = {"a": 9, "b": 1, "c": 9, "d": 9}
    assert max_min_shares(rows, 12) == {"a": 4, "b": 1, "c": 4, "d": 3}
    assert max_min_shares(rows, 100) == rows
    assert max_min_shares({}, 4) == {}


def test_turns_forget_those_served_longest_ago(monkeypatch):
    """A bounded number of clients and keys is remembered."""
    monkeypatch.setattr("app.batching.fair_queue._MOST_SERVED", 2)
    turns = Turns()
    for client in "abca":
        turns.note([client])
    assert turns.last("b") == 0
    assert 0 < turns.last("c") < turns.last("a")
