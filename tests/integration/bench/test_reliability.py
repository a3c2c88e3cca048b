"""Short reliability checks: a sound server passes, servers with faults are caught.

The long versions, with the figures, are `python -m bench.reliability`.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from bench.figures import percentile
from bench.reliability.chaos import chaos
from bench.reliability.disconnects import disconnects
from bench.reliability.fairness import alone_and_beside
from bench.reliability.out_of_memory import out_of_memory
from bench.reliability.overload import peak_and_twice
from bench.reliability.poison import poison
from bench.reliability.report import tally
from testing import poison_model
from testing.broken import app_with

# Rows: few, so that HTTP is never the bottleneck.
BATCH = 16


def broken(report):
    """Print the table for readers of a failure, and return the broken promises."""
    print(report.markdown())
    return report.broken()


@pytest.fixture(name="faulty", scope="module")
def _faulty(poisoned):
    """What is seen of servers by fault, of three at a time: clients mostly wait."""
    seen = {
        "never_late": partial(peak_and_twice, seconds=5, batch=BATCH),
        "computes_late": partial(peak_and_twice, seconds=5, batch=BATCH),
        "first_come": partial(alone_and_beside, seconds=5, batch=4),
        "runs_abandoned": partial(disconnects, clients=200, batch_s=1.5),
        "forgets": partial(out_of_memory, seconds=1),
        "gives_up": partial(out_of_memory, seconds=1),
        "fall_together": partial(chaos, seconds=7),
    }
    with ThreadPoolExecutor(3) as pool:
        running = {
            fault: pool.submit(look, app=app_with(fault))
            for fault, look in seen.items()
        }
        running["gives_up on a poisoned row"] = pool.submit(
            poison, rounds=2, models=poisoned, app=app_with("gives_up")
        )
    return {fault: each.result() for fault, each in running.items()}


def shown(load):
    """Print the figures of a load for readers of a failure, and return it."""
    print(load.goodput(), load.in_vain(), load.rows_run, tally(load.outcomes))
    return load


def failed(seen):
    """Return the polite client's requests without a right answer."""
    return [one for one in (*seen.alone, *seen.beside) if not one.is_good()]


def usual_s(outcomes):
    """Return the median latency of right answers."""
    return percentile([one.latency_s for one in outcomes if one.is_good()], 50)


def test_overload_is_answered_in_time_or_refused():
    """Every request is answered in time or refused, and the queue is bounded."""
    _, load = peak_and_twice(seconds=5, batch=BATCH)
    assert shown(load).unaccounted() == []
    assert load.times_s(refused=True)
    assert load.most_waiting <= 16 * BATCH
    assert usual_s(load.outcomes) <= 1
    # Until the server knows how long answers take; the long version allows none.
    assert load.in_vain() < 0.3 * load.rows_run


def test_server_without_deadlines_is_caught(faulty):
    """A server that keeps no deadline answers most requests too late."""
    _, load = faulty["never_late"]
    assert usual_s(shown(load).outcomes) > 1


def test_server_that_runs_expired_rows_is_caught(faulty):
    """A server that runs rows whose deadline has passed runs most of them in vain."""
    _, load = faulty["computes_late"]
    assert shown(load).in_vain() > 0.3 * load.rows_run


def test_polite_client_is_served_beside_a_flood():
    """Beside a flood a polite client is always answered, and much sooner."""
    seen = alone_and_beside(seconds=5, batch=4)
    assert failed(seen) == []
    assert usual_s(seen.beside) < 0.5 * usual_s(seen.flood)


def test_server_without_fair_queueing_is_caught(faulty):
    """Without fair queueing the polite client is refused and waits like the flood."""
    seen = faulty["first_come"]
    assert failed(seen)
    assert usual_s(seen.beside) > 0.5 * usual_s(seen.flood)


def test_rows_of_disconnected_clients_do_not_run():
    """Rows of 200 clients that disconnect while queued do not run."""
    # A busy machine may break these; all others hold in every try.
    timed = {
        "all disconnects during the first batch",
        "clients that stayed, after the first batch",
    }
    for _ in range(3):
        missed = set(broken(disconnects(clients=200, batch_s=1.5)))
        assert missed <= timed
        if not missed:
            break
    assert not missed


def test_server_that_runs_abandoned_rows_is_caught(faulty):
    """A server that runs rows of disconnected clients breaks three promises."""
    assert broken(faulty["runs_abandoned"]) == [
        "rows run of clients that disconnected",
        "disconnects not counted",
        "clients that stayed, after the first batch",
    ]


def test_small_device_memory_fails_no_request():
    """On a device that holds 20 rows, batches shrink to 20 and all are answered."""
    assert broken(out_of_memory(seconds=3)) == []


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        ("gives_up", "requests lost, failed or wrong"),
        ("forgets", "full batches until the ceiling is found"),
    ],
)
def test_server_without_a_batch_ceiling_is_caught(faulty, fault, caught):
    """A server that fails large batches, or forgets the ceiling, breaks a promise."""
    assert caught in broken(faulty[fault])


@pytest.fixture(name="poisoned", scope="module")
def _poisoned(tmp_path_factory):
    """A folder with the model that raises on marked rows."""
    folder = tmp_path_factory.mktemp("models")
    poison_model.write(folder)
    return folder


def test_poisoned_row_fails_alone(poisoned):
    """Of 64 requests at once one is poisoned, and 63 are answered right."""
    assert broken(poison(rounds=5, models=poisoned)) == []


def test_server_that_fails_a_whole_batch_is_caught(faulty):
    """A server that fails a whole batch for one row breaks the promise."""
    report = faulty["gives_up on a poisoned row"]
    assert "sound rows that failed, marked ones that did not" in broken(report)


def test_killed_workers_lose_only_their_own_requests():
    """Of three workers two are killed; only requests that they held are lost."""
    assert broken(chaos(seconds=7)) == []


def test_server_whose_workers_end_together_is_caught(faulty):
    """Workers that end with a killed one lose requests that it did not hold."""
    assert "lost that no killed worker held" in broken(faulty["fall_together"])
