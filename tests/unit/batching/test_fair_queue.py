"""Clients take turns: in a batch, in a full queue, and in what is told of the wait."""

import queue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.fair_queue import FairQueue
from app.batching.job import Job
from app.batching.job_queue import JobQueue
from app.batching.release import FixedTimeout
from app.errors import QueueFull
from tests.support.jobs import job, outcome

AT_ONCE = FixedTimeout(0)
# When nobody is late yet.
NOW = 0.0


def _line(**rows):
    """One job for each client with so many rows, in this order."""
    line = FairQueue()
    for client, count in rows.items():
        line.add(job(*range(count), client=client))
    return line


def _shares(pieces):
    return {piece.job.client: piece.stop - piece.start for piece in pieces}


@pytest.mark.parametrize(
    ("rows", "room", "shares"),
    [
        pytest.param({"a": 9, "b": 9}, 4, {"a": 2, "b": 2}, id="even"),
        pytest.param({"a": 99, "b": 1}, 4, {"a": 3, "b": 1}, id="what is not needed"),
        pytest.param({"a": 9, "b": 1, "c": 9}, 7, {"a": 3, "b": 1, "c": 3}, id="three"),
        pytest.param({"a": 9, "b": 9}, 5, {"a": 3, "b": 2}, id="an odd one"),
        pytest.param({"a": 2, "b": 1}, 4, {"a": 2, "b": 1}, id="all fit"),
        pytest.param({"a": 1, "b": 1, "c": 1}, 2, {"a": 1, "b": 1}, id="more clients"),
    ],
)
def test_a_batch_is_divided_evenly(rows, room, shares):
    """Clients get equal shares of a batch, and what one leaves falls to the others."""
    assert _shares(_line(**rows).take(room, NOW)) == shares


def test_a_client_with_more_than_a_batch_goes_on_in_the_next():
    """A long job's rows go into batch after batch, each once, in order."""
    line = _line(a=10, b=2)
    spans = []
    while line.rows:
        spans += [p[1:] for p in line.take(4, NOW) if p.job.client == "a"]
    assert spans == [(0, 2), (2, 6), (6, 10)]


def test_clients_that_outnumber_a_batch_take_turns():
    """With more clients than a batch has rows each is served before any is twice."""
    line = _line(a=3, b=3, c=3)
    taken = [
        piece.job.client
        for _ in range(3)
        for piece in line.take(2, NOW)
        for _ in range(piece.stop - piece.start)
    ]
    assert taken == ["a", "b", "c", "a", "b", "c"]


@given(
    rows=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    room=st.integers(1, 16),
)
def test_nobody_gets_more_while_another_wants_it(rows, room):
    """A batch is full or serves all, and who wants more has at most one row less."""
    line = _line(**{f"client {n}": count for n, count in enumerate(rows)})
    shares = _shares(line.take(room, NOW))
    assert sum(shares.values()) == min(room, sum(rows))
    most = max(shares.values())
    for n, count in enumerate(rows):
        got = shares.get(f"client {n}", 0)
        assert got == count or got >= most - 1
    assert line.rows == sum(rows) - sum(shares.values())


# A full queue.


def _queue(*jobs):
    made = JobQueue(8, AT_ONCE)
    for one in jobs:
        made.put_nowait(one)
    return made


def test_a_full_queue_makes_room_for_who_has_least():
    """The newest job of the client with most rows gives way, and may come again."""
    flood = [job(n, client="flood") for n in range(8)]
    jobs = _queue(*flood)
    polite = job(1, client="polite")
    jobs.put_nowait(polite)
    assert [one.is_answered() for one in flood] == [False] * 7 + [True]
    answer = outcome(flood[7])
    assert isinstance(answer, QueueFull)
    assert answer.retry_after_s >= 1
    assert jobs.qsize() == 8


def test_a_full_queue_is_shared_evenly_in_the_end():
    """Whoever comes, in a full queue no client is pushed below an even share."""
    jobs = _queue(*(job(n, client="flood") for n in range(8)))
    for n in range(4):
        jobs.put_nowait(job(n, client="polite"))
    with pytest.raises(queue.Full):
        jobs.put_nowait(job(5, client="polite"))
    with pytest.raises(queue.Full):
        jobs.put_nowait(job(5, client="flood"))
    jobs.put_nowait(job(1, client="a third one"))


def test_nobody_gives_way_in_vain():
    """Who would be refused all the same costs nobody else an answer."""
    flood = [job(n, client="flood") for n in range(5)]
    jobs = _queue(*flood, *(job(n, client="polite") for n in range(3)))
    with pytest.raises(queue.Full):
        jobs.put_nowait(job(*range(4), client="a third one"))
    assert not any(one.is_answered() for one in flood)
    assert jobs.qsize() == 8


def test_what_waits_is_shown_also_where_a_newcomer_is_refused():
    """Rows of dead jobs that a refusal found are shown to be gone."""
    shown = []
    jobs = JobQueue(2, AT_ONCE, on_change=shown.append)
    jobs.put_nowait(job(1, is_disconnected=lambda: True))
    jobs.put_nowait(job(2))
    with pytest.raises(queue.Full):
        jobs.put_nowait(job(3, 4))
    assert shown == [1, 2, 1]


def test_a_job_that_has_begun_does_not_give_way():
    """A job of which rows have run is finished, whoever comes."""
    large = job(*range(9), client="flood")
    jobs = JobQueue(9, AT_ONCE)
    jobs.put_nowait(large)
    jobs.take(lambda key: 1)
    jobs.put_nowait(job(1, client="polite"))
    with pytest.raises(queue.Full):
        jobs.put_nowait(job(1, client="polite"))
    assert not large.is_answered()


def test_dead_jobs_give_way_first():
    """In a full queue jobs that nobody waits for make room before any other does."""
    gone = job(1, client="gone", is_disconnected=lambda: True)
    flood = [job(n, client="flood") for n in range(7)]
    jobs = _queue(gone, *flood)
    jobs.put_nowait(job(1, client="polite"))
    assert gone.is_answered()
    assert not any(one.is_answered() for one in flood)


def test_the_dead_are_not_searched_for():
    """Dropping dead jobs from among living ones compares no job with another."""
    compared = []

    class Compared(Job):
        __hash__ = Job.__hash__

        def __eq__(self, other):
            compared.append(other)
            return self is other

    rows = {"input": np.zeros((1, 1), np.float32)}
    line = FairQueue()
    for n in range(8):
        line.add(Compared(rows, deadline=1000.0 + n % 2))
    line.drop_dead(now=1000.0)
    assert line.rows == line.rows_by_client[""] == 4
    assert not any(one.is_answered() for one in line)
    assert not compared


def test_lines_of_all_shapes_count_together():
    """A client that floods with rows of several shapes gives way as well."""
    flood = [job(n, width=1 + n % 2, client="flood") for n in range(8)]
    jobs = _queue(*flood)
    jobs.put_nowait(job(1, dtype=np.float64, client="polite"))
    assert sum(one.is_answered() for one in flood) == 1
    assert jobs.qsize() == 8


# What is told of the wait.


def test_rows_ahead_counts_turns():
    """A client waits for its own rows, and for as many of each other one."""
    jobs = _queue(job(*range(5), client="flood"), job(1, 2, client="other"))
    assert jobs.rows_ahead(job(1, client="polite")) == 2
    assert jobs.rows_ahead(job(1, 2, 3, client="polite")) == 5
    assert jobs.rows_ahead(job(1, client="other")) == 5
    assert jobs.rows_ahead(job(1, client="flood")) == 7
