"""Counts of a rollout: exact over threads and processes, and harmless to requests."""

import shutil
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.promotion.counts import EDGES_S, PHASES
from app.promotion.evidence import Evidence

NAME = "digits/2 *"
requests = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.booleans(),
        st.sampled_from([200, 400, 500, 503, 504, 507]),
        st.floats(0, 100),
        st.booleans(),
    ),
    max_size=60,
)


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def in_memory():
    return Evidence(None, Clock())


def candidate(evidence, phase=0):
    return evidence.read(NAME).side(phase, phase, is_candidate=True)


def count(evidence, number=1, status=200, seconds=0.01, has_nan=False):
    for _ in range(number):
        evidence.count(NAME, 0, True, status, seconds, has_nan)


@given(requests)
def test_counts_are_those_of_the_requests(answered):
    """Each request is counted once, on its side and in its phase."""
    evidence = in_memory()
    for request in answered:
        evidence.count(NAME, *request)
    counts = evidence.read(NAME)
    for phase in range(PHASES):
        for is_candidate in (False, True):
            mine = [
                (status, seconds, has_nan)
                for number, side, status, seconds, has_nan in answered
                if min(number, PHASES - 1) == phase and side == is_candidate
            ]
            side = counts.side(phase, phase, is_candidate=is_candidate)
            taken = [each for each in mine if each[0] != 503]
            assert side.requests == len(taken)
            assert side.errors.hits == sum(each[0] >= 500 for each in taken)
            assert side.unavailable[:2] == (
                sum(each[0] >= 500 for each in mine),
                len(mine),
            )
            assert side.not_a_number.hits == sum(each[2] for each in taken)
            timed = [each[1] for each in taken if each[0] in (200, 504)]
            for edge in (0, 100, 274):
                slow = sum(seconds > EDGES_S[edge] * (1 + 1e-9) for seconds in timed)
                assert side.slower_than(edge)[:2] == (slow, len(timed))


@given(st.lists(requests, min_size=1, max_size=3))
def test_pooled_counts_equal_the_sum_over_processes(tmp_path_factory, by_process):
    """Reading files of several processes gives the sums of their numbers."""
    folder = tmp_path_factory.mktemp("counts")
    alone = in_memory()
    for answered in by_process:
        evidence = Evidence(folder, Clock())
        for request in answered:
            evidence.count(NAME, *request)
            alone.count(NAME, *request)
    pooled, expected = Evidence(folder).read(NAME), alone.read(NAME)
    for is_candidate in (False, True):
        side = pooled.side(0, PHASES, is_candidate=is_candidate)
        other = expected.side(0, PHASES, is_candidate=is_candidate)
        assert side.requests == other.requests
        assert side.errors[:2] == other.errors[:2]
        assert side.not_a_number[:2] == other.not_a_number[:2]
        assert np.array_equal(side.latencies, other.latencies)
    shutil.rmtree(folder)


@given(st.lists(st.tuples(st.floats(0.0001, 1), st.floats(0.001, 0.1)), max_size=40))
def test_pairs_are_those_of_slow_requests_in_a_group(answered):
    """The pairs above an edge are the sum of the squared numbers in each group."""
    clock = Clock()
    evidence = Evidence(None, clock)
    groups, began_at = [], -1000.0
    for seconds, after_s in answered:
        clock.now += after_s
        if clock.now - seconds > began_at + 0.05 or clock.now > began_at + 1:
            groups.append([])
            began_at = clock.now
        groups[-1].append(seconds)
        count(evidence, seconds=seconds)
    for edge in (0, 60, 120, 150, 180):
        limit_s = EDGES_S[edge] * (1 + 1e-9)
        slow = [sum(each > limit_s for each in group) for group in groups]
        rate = candidate(evidence).slower_than(edge)
        assert rate.pairs == sum(number**2 for number in slow)


def test_answers_at_once_are_one_group():
    """Ten errors in a batch count as one, ten apart as ten."""
    clock = Clock()
    together, apart = Evidence(None, clock), Evidence(None, clock)
    for _ in range(10):
        count(together, status=500)
    assert candidate(together).errors.group_size == 10
    for _ in range(10):
        clock.now += 0.1
        count(apart, status=500)
    assert candidate(apart).errors.group_size == 1


def test_requests_of_many_threads_are_counted_exactly(tmp_path):
    """Eight threads that count at once lose nothing."""
    evidence = Evidence(tmp_path)
    start = threading.Barrier(8)

    def work():
        start.wait()
        count(evidence, 2000, status=500)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert candidate(evidence).errors[:2] == (16_000, 16_000)


@pytest.mark.parametrize("content", [b"", b"foreign" * 10, b"basket-rollout-1" * 9])
def test_foreign_or_truncated_file_is_ignored_and_logged_once(
    tmp_path, content, caplog
):
    """What is no table counts for nothing, and does not fill the log."""
    evidence = Evidence(tmp_path)
    count(evidence, 3)
    file = next(tmp_path.iterdir())
    file.with_name(file.name + "0").write_bytes(content)
    for _ in range(3):
        assert candidate(evidence).requests == 3
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_a_folder_that_cannot_be_made_leaves_counts_in_memory(tmp_path, caplog):
    """The process counts in its own memory from then on, and warns once."""
    file = tmp_path / "file"
    file.touch()
    evidence = Evidence(file / "counts")
    count(evidence, 3)
    evidence.count("another", 0, True, 200, 0.01, False)
    assert candidate(evidence).requests == 3
    assert len(caplog.records) == 1
    evidence.forget(NAME)
    assert candidate(evidence).requests == 0


def test_file_is_allocated_before_it_is_written(tmp_path):
    """No write to memory can fail because the disk has become full since."""
    count(Evidence(tmp_path))
    file = next(tmp_path.iterdir()).stat()
    assert file.st_blocks * 512 >= file.st_size


def test_forgotten_counts_are_gone_for_all_processes(tmp_path):
    """Forgetting removes the files of one rollout, and of no other."""
    one, two = Evidence(tmp_path), Evidence(tmp_path)
    for evidence in (one, two):
        count(evidence)
        evidence.count(f"{NAME}2", 0, True, 200, 0.01, False)
    one.forget(NAME)
    one.forget(NAME)
    assert candidate(two).requests == 0
    other = two.read(f"{NAME}2").side(0, 0, is_candidate=True)
    assert other.requests == 2
    count(one)
    assert candidate(two).requests == 1


def test_refused_requests_do_not_hide_errors():
    """503 counts as unavailable; the error rate leaves it out."""
    evidence = in_memory()
    count(evidence, 3, status=500)
    count(evidence, 97, status=503)
    side = candidate(evidence)
    assert side.errors[:2] == (3, 3)
    assert side.unavailable[:2] == (100, 100)
