"""Simulated servers against queueing theory, and against a real Batcher."""

import math
import random
from dataclasses import replace

import pytest

from app.batching.batcher import Batcher
from app.batching.release import release_for
from app.commands.plan import simulation
from app.commands.plan.batch_seconds import BatchSeconds
from app.commands.plan.server import PlannedJob, ServerPlan, SimulatedServer
from app.commands.plan.simulation import SPREADS, Load, simulate
from app.commands.plan.timeline import Timeline
from app.settings import Settings
from tests.support.engines import Echo
from tests.support.jobs import FakeTime, Notes, executor, job

THINKING = (1.0, 3.0)


def server(base_s, per_row_s=0.0, overhead_s=0.0, **settings):
    """A server with batches that take base_s + rows * per_row_s."""
    limits = Settings(**settings)
    sizes = 1, limits.max_batch_size
    seconds = {size: base_s + per_row_s * size for size in sizes}
    return ServerPlan(limits, BatchSeconds(seconds, limits), overhead_s)


def seen(plan, load, servers=1, spread="random"):
    return simulate(plan, servers, load, spread, 0.5)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Have simulations end after so many requests, 1,000 unless called."""

    def end_after(requests):
        monkeypatch.setattr(simulation, "_STEP", requests // 5)
        monkeypatch.setattr(simulation, "_OF_A_SERVER", requests // 30)
        monkeypatch.setattr(simulation, "_MOST_REQUESTS", requests)

    end_after(1_000)
    return end_after


@pytest.mark.parametrize(("busy", "requests"), [(0.3, 20_000), (0.6, 8_000)])
def test_one_row_at_a_time_waits_as_in_an_md1_queue(busy, requests, short, monkeypatch):
    """Poisson arrivals and batches of 1 wait as Pollaczek and Khinchine say."""
    monkeypatch.setattr(simulation.Outcome, "is_known", lambda *_: False)
    short(requests)
    row_s = 0.1
    outcome = seen(server(row_s, max_batch_size=1), Load(rate=busy / row_s))
    assert outcome.busy == pytest.approx(busy, rel=0.01)
    # Of as many arrivals as came by chance.
    busy = outcome.rate * row_s
    waiting_s = busy * row_s / (2 * (1 - busy))
    assert outcome.mean_s - row_s == pytest.approx(waiting_s, rel=0.04)
    assert outcome.batch_rows == 1
    assert not outcome.refused


@pytest.mark.parametrize("users", [1, 4, 8, 30])
def test_users_see_the_interactive_response_time_law(users, short):
    """Rate, response and think time fit, within the bounds of one row at a time."""
    short(3_000)
    row_s, think_s = 0.3, 2.0
    plan = server(row_s, max_batch_size=1, max_enqueued_batches=users)
    outcome = seen(plan, Load(users, THINKING))
    assert not outcome.refused
    cycle_s = think_s + outcome.mean_s
    assert users / outcome.rate == pytest.approx(cycle_s, rel=0.01)
    assert outcome.rate <= 1.005 * min(users / (think_s + row_s), 1 / row_s)
    assert outcome.mean_s >= 0.999 * max(row_s, users * row_s - think_s)


@pytest.mark.parametrize("users", [64, 128])
def test_batches_of_a_busy_server_take_one_and_a_half_times_their_time(users):
    """Rows that arrive at any time wait for half a batch, and then for their own."""
    outcome = seen(server(0.3), Load(users, THINKING))
    assert outcome.mean_s == pytest.approx(0.45, rel=0.02)
    assert outcome.batch_rows == pytest.approx(outcome.rate * 0.3, rel=0.02)


def test_users_who_think_equally_long_do_not_send_together():
    """A burst of all users at the start would come again in each round."""
    plan = server(0.01, overhead_s=0.0005)
    equally, unlike = (
        seen(plan, Load(400, think_s)).p95_s for think_s in ((1.0, 1.0), (0.8, 1.2))
    )
    assert equally == pytest.approx(unlike, rel=0.1)


def test_users_without_think_time_saturate_a_server():
    """The device never idles, and each user waits for all others."""
    outcome = seen(server(0.1, max_batch_size=1), Load(5, (0.0, 0.0)))
    assert outcome.busy == pytest.approx(1)
    assert outcome.mean_s == pytest.approx(0.5)
    assert outcome.rate == pytest.approx(10)


def test_a_batch_has_at_most_max_batch_size_rows():
    """Users beyond what full batches serve wait for the next ones."""
    outcome = seen(server(0.3, max_batch_size=4), Load(60, THINKING))
    assert outcome.batch_rows == pytest.approx(4)
    assert outcome.rate == pytest.approx(4 / 0.3, rel=0.01)
    assert outcome.mean_s == pytest.approx(60 / (4 / 0.3) - 2, rel=0.02)


def test_allowed_batch_sizes_take_the_time_of_the_padded_batch():
    """A batch of 3 rows takes as long as one of 4."""
    settings = Settings(max_batch_size=8, allowed_batch_sizes=(1, 4, 8))
    seconds = BatchSeconds({1: 0.1, 4: 0.4, 8: 0.8}, settings)
    assert [seconds.of(rows) for rows in (1, 2, 3, 4, 5)] == [0.1, 0.4, 0.4, 0.4, 0.8]
    assert seconds.most_rows_per_s() == pytest.approx(10)


def test_times_between_measured_sizes_are_on_a_line():
    """Where any size may run, a batch of 3 is halfway between those of 2 and 4."""
    seconds = BatchSeconds({1: 0.1, 2: 0.2, 4: 0.6}, Settings())
    assert seconds.of(3) == pytest.approx(0.4)
    assert seconds.max_batch_size == 4


def test_a_fixed_timeout_holds_the_batch_of_a_lone_user():
    """A user alone waits for batch_timeout_micros, and then for the batch."""
    plan = server(0.3, batch_timeout_micros=500_000)
    assert seen(plan, Load(1, THINKING)).mean_s == pytest.approx(0.8)
    assert plan.alone_s == pytest.approx(0.8)


def test_a_batch_after_a_rest_takes_longer():
    """A lone user's batches come after a rest, those of a busy server do not."""
    limits = Settings(max_batch_size=1)
    seconds = BatchSeconds({1: 0.1}, limits, {0.0: [0.0], 0.1: [0.02]})
    plan = ServerPlan(limits, seconds, 0.0)
    assert seen(plan, Load(1, THINKING)).mean_s == pytest.approx(0.12)
    assert seen(plan, Load(5, (0.0, 0.0))).mean_s == pytest.approx(0.5)


def test_a_batch_takes_what_was_measured_after_a_like_rest():
    """A rest counts as the nearest one that was measured."""
    seconds = BatchSeconds({1: 0.1}, Settings(), {0.2: [0.02], 0.0: [0.001, 0.002]})
    assert [seconds.after(rest_s) for rest_s in (0.0, 0.09)] == [[0.001, 0.002]] * 2
    assert [seconds.after(rest_s) for rest_s in (0.11, 9.0)] == [[0.02]] * 2
    assert BatchSeconds({1: 0.1}, Settings()).after(9.0) == (0.0,)


def test_batches_after_a_rest_take_as_unlike_times_as_were_measured():
    """A lone user's p95 is that of the measured times, and the same in each plan."""
    limits = Settings(max_batch_size=1)
    rested_s = [0.0] * 18 + [0.02, 0.05]
    plan = ServerPlan(limits, BatchSeconds({1: 0.1}, limits, {0.01: rested_s}), 0.0)
    outcome = seen(plan, Load(1, THINKING))
    assert outcome.p50_s == pytest.approx(0.1)
    assert outcome.mean_s == pytest.approx(0.1035, rel=0.02)
    assert outcome.p99_s == pytest.approx(0.15)
    assert seen(plan, Load(1, THINKING)) == outcome
    assert plan.alone_s == pytest.approx(0.1)


def test_overhead_counts_once_for_each_request_and_is_serial():
    """A lone request has its overhead; many at a time wait for the event loop."""
    plan = server(0.01, overhead_s=0.02)
    assert seen(plan, Load(1, THINKING)).mean_s == pytest.approx(0.03)
    outcome = seen(plan, Load(100, (0.0, 0.0)))
    assert outcome.rate == pytest.approx(50, rel=0.01)


def test_an_overloaded_server_refuses_what_its_queue_cannot_hold(short):
    """The rest is answered as fast as full batches run, after a wait in the queue."""
    short(3_000)
    limits = {"max_batch_size": 4, "max_enqueued_batches": 2}
    outcome = seen(server(0.1, **limits), Load(rate=80.0))
    assert outcome.refused == pytest.approx(0.5, rel=0.05)
    assert outcome.rate == pytest.approx(40, rel=0.01)
    assert outcome.p99_s <= 0.1 * (1 + 2 + 1)
    assert not outcome.holds(10.0)


def test_a_request_that_would_be_late_is_refused():
    """Admission control refuses what can't be answered within the timeout."""
    plan = server(1.0, max_batch_size=1, request_timeout_ms=3000)
    outcome = seen(plan, Load(rate=5.0))
    assert outcome.refused == pytest.approx(0.8, rel=0.05)
    assert outcome.p99_s <= 3.0


def test_spreads_differ_as_they_should():
    """With equal servers round robin and the lesser of two beat a random choice."""
    plan = server(0.1, max_batch_size=1)
    means = {each: seen(plan, Load(rate=64.0), 8, each).mean_s for each in SPREADS}
    assert means["round-robin"] < 0.8 * means["random"]
    assert means["least-of-two"] < 0.8 * means["random"]


def test_many_servers_are_simulated_as_some_with_their_share(short):
    """The rate is that of all servers, the other figures are those of one."""
    short(3_000)
    plan = server(0.3)
    many, some = (seen(plan, Load(rate=100.0 * n), n) for n in (3200, 32))
    assert many == some._replace(rate=many.rate)
    assert many.rate == pytest.approx(320_000, rel=0.05)


def test_the_same_arguments_give_the_same_outcome():
    """Randomness is seeded."""
    plan, load = server(0.3, 0.01), Load(30, THINKING)
    assert seen(plan, load, 3) == seen(plan, load, 3)
    assert seen(plan, load, 3) != seen(plan, replace(load, users=31), 3)


def test_uncertainty_covers_the_difference_from_a_longer_run(short, monkeypatch):
    """A run three times as long has its p95 within twice what the short one states."""
    plan, load = server(0.1, max_batch_size=1), Load(rate=7.0)
    monkeypatch.setattr(simulation.Outcome, "is_known", lambda *_: False)
    short(3_000)
    once = seen(plan, load)
    short(9_000)
    long = seen(plan, load)
    assert 0 < long.uncertainty < once.uncertainty < 0.2
    assert abs(once.p95_s / long.p95_s - 1) < 2 * once.uncertainty


@pytest.mark.parametrize(
    ("p95_s", "uncertainty", "is_known"),
    [
        (0.5, 0.01, True),
        (0.49, 0.02, False),
        (0.51, 0.02, False),
        (0.4, 0.03, True),
        (0.4, 0.04, False),
        (0.9, 0.1, True),
        (9.0, 0.4, False),
    ],
)
def test_a_p95_far_from_the_limit_is_known_sooner(p95_s, uncertainty, is_known):
    """To 1 % near the limit, else as well as tells it from the limit of 0.5 s."""
    outcome = simulation.Outcome(0, 0, p95_s, 0, 0, 0, 0, 0, uncertainty)
    assert outcome.is_known(0.5) == is_known


@pytest.mark.parametrize("micros", [None, 0, 20_000], ids=["auto", "0 ms", "20 ms"])
@pytest.mark.parametrize("think_s", [(0.0005, 0.002), (0.01, 0.2)])
def test_release_decisions_are_those_of_a_real_batcher(micros, think_s):
    """Given the same arrivals, each batch starts at the same time with as many rows."""
    plan = server(0.05, 0.001, max_batch_size=8, batch_timeout_micros=micros)
    arrivals, virtual = closed_loop(plan, 12, think_s, batches=150)
    real = real_batches(plan, arrivals)
    assert len({rows for _, rows in virtual}) > 1
    assert real[:150] == [(pytest.approx(at_s), rows) for at_s, rows in virtual]


def closed_loop(plan, users, think_s, batches):
    """Return when requests arrived at a simulated server, and its (start, rows)."""
    timeline, chance = Timeline(), random.Random(2)
    arrivals, started = [], []

    def send(user):
        arrivals.append(timeline.now)
        one.receive(PlannedJob(timeline.now, user))

    def done(request, is_result):
        nonlocal before
        assert is_result
        if one.batches > before[0]:
            took_s = one.busy_s - before[2]
            started.append((timeline.now - took_s, one.rows - before[1]))
            before = one.batches, one.rows, one.busy_s
        if len(started) == batches:
            timeline.stop()
        timeline.at(timeline.now + chance.uniform(*think_s), send, request.user)

    one = SimulatedServer(plan, timeline, done)
    before = 0, 0, 0.0
    for user in range(users):
        timeline.at(chance.uniform(0, 0.1), send, user)
    timeline.run()
    return arrivals, started


def real_batches(plan, arrivals):
    """Return the (start, rows) of a real Batcher's batches on a fake clock."""
    fake, started = FakeTime(0.0), []

    class Device(Echo):
        def run(self, batch, signature_name=""):
            rows = len(batch["input"])
            started.append((fake.now, rows))
            fake.pass_s(plan.batches.of(rows))
            return super().run(batch)

    runs = executor(Device(), plan.settings.max_batch_size, clock=fake.clock)
    release = release_for(plan.settings, runs.expected_s)
    rest = Notes(), fake.clock, fake.wait
    batcher = Batcher(runs, release, plan.settings.max_rows, *rest)

    def arrive():
        one = job(0, deadline=math.inf)
        one.enqueued_at = fake.now
        batcher.submit(one)

    for at_s in arrivals:
        fake.at(at_s, arrive)
    fake.at(arrivals[-1] + 60, lambda: batcher.close(0))
    while batcher.run_next():
        pass
    return started
