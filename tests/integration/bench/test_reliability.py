"""The checks of reliability, short: a sound server passes, broken ones are caught.

The long versions, with the figures, are `python -m bench.reliability`.
"""

import pytest

from bench.figures import percentile
from bench.reliability.chaos import chaos
from bench.reliability.disconnects import disconnects
from bench.reliability.fairness import alone_and_beside
from bench.reliability.out_of_memory import out_of_memory
from bench.reliability.overload import peak_and_twice
from bench.reliability.poison import poison
from bench.reliability.report import tally
from bench.reliability.set_up import GOOD
from testing.broken import app_with

# Rows: few, so that HTTP is never what takes the time.
BATCH = 16


def broken(report):
    """What was not held, after the whole table was shown to whoever reads a failure."""
    print(report.markdown())
    return report.broken()


def overloaded(app=GOOD):
    """What becomes of twice of what the device can do, with a deadline of 1 s."""
    _, load = peak_and_twice(seconds=5, app=app, batch=BATCH)
    print(load.goodput(), load.in_vain(), load.rows_run, tally(load.outcomes))
    return load


def usual_s(outcomes):
    """The median time of what was answered."""
    return percentile([one.latency_s for one in outcomes if one.is_good()], 50)


def test_under_overload_each_is_told_in_time():
    """Under overload each is answered in time or refused, and the queue is bounded."""
    load = overloaded()
    assert load.unaccounted() == []
    assert load.refused()
    assert load.most_waiting <= 16 * BATCH
    assert usual_s(load.outcomes) <= 1
    # Until the server has learnt how long answers take; the long version allows none.
    assert load.in_vain() < 0.3 * load.rows_run


def test_answers_that_are_too_late_are_caught():
    """A server that keeps no deadline answers most when it is too late."""
    assert usual_s(overloaded(app_with("never_late")).outcomes) > 1


def test_rows_that_run_late_are_caught():
    """A server that runs rows whose deadline has passed runs most of them in vain."""
    load = overloaded(app_with("computes_late"))
    assert load.in_vain() > 0.3 * load.rows_run


def test_a_flood_does_not_hold_up_the_polite():
    """Beside a flood a polite client is answered much sooner, and always."""
    seen = alone_and_beside(seconds=5, batch=4)
    assert seen.failed() == 0
    assert usual_s(seen.beside) < 0.5 * usual_s(seen.flood)


def test_first_come_first_served_is_caught():
    """Where clients have no turns, the polite one is refused and waits as the flood."""
    seen = alone_and_beside(seconds=5, app=app_with("first_come"), batch=4)
    assert seen.failed() > 0
    assert usual_s(seen.beside) > 0.5 * usual_s(seen.flood)


def test_rows_of_who_hung_up_do_not_run():
    """200 clients that hang up while queued cost nothing, and delay nobody."""
    # What other work on the machine may spoil; all else is held in every try.
    timed = {
        "the crowd came and went during the first batch",
        "those who stayed, after the first batch",
    }
    for _ in range(3):
        missed = set(broken(disconnects(clients=200, batch_s=1.5)))
        assert missed <= timed
        if not missed:
            break
    assert not missed


def test_abandoned_rows_that_run_are_caught():
    """A server that runs the rows of clients that have gone is found out."""
    report = disconnects(clients=200, batch_s=1.5, app=app_with("runs_abandoned"))
    assert broken(report) == [
        "rows run of those who hung up",
        "hang-ups counted",
        "those who stayed, after the first batch",
    ]


def test_a_small_memory_loses_nobody():
    """On a device that holds 20 rows, batches shrink to 20 and all are answered."""
    assert broken(out_of_memory(seconds=3)) == []


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        ("gives_up", "requests lost, failed or wrong"),
        ("forgets", "full batches until the ceiling is found"),
    ],
)
def test_memory_that_is_not_learnt_is_caught(fault, caught):
    """A server that fails what does not fit, or forgets what fits, is found out."""
    assert caught in broken(out_of_memory(seconds=1, app=app_with(fault)))


def test_one_poisoned_row_fails_alone():
    """Of 64 requests at once one is poison; 63 are answered right in each round."""
    assert broken(poison(rounds=20)) == []


def test_failing_neighbours_are_caught():
    """A server that fails a whole batch for one row is found out."""
    report = poison(rounds=2, app=app_with("gives_up"))
    assert "sound rows that failed, marked ones that did not" in broken(report)


def test_killed_workers_take_only_their_own():
    """Of three workers two are killed in turn; only what they held is lost."""
    assert broken(chaos(seconds=7)) == []


def test_workers_that_fall_together_are_caught():
    """A server whose workers end with one another loses what no victim held."""
    report = chaos(seconds=7, app=app_with("fall_together"))
    assert "lost that no killed worker held" in broken(report)
