"""Properties of batchers: each accepted job gets one correct answer."""

import itertools
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.batching.batcher import Batcher
from app.batching.job import Job
from app.batching.release import FixedTimeout
from app.batching.unbatched import Unbatched
from app.errors import Abandoned, Late, ModelFailed, QueueFull, Stopping, TooLarge
from tests.support.engines import Echo, Puppet
from tests.support.jobs import Notes, executor, job, outcome

MAX_BATCH_SIZE, MAX_ENQUEUED_BATCHES = 4, 3
AT_ONCE = FixedTimeout(0)
MAX_ROWS = MAX_BATCH_SIZE * MAX_ENQUEUED_BATCHES
INDEXES = st.integers(0, 1000)


@dataclass(eq=False)
class Client:
    """One accepted request: rows with numbers that no other request has."""

    values: list[float]
    width: int
    disconnected: bool = False
    late: bool = False
    failed: bool = False
    run: set[float] = field(default_factory=set)
    job: Job | None = None


class BatcherMachine(RuleBasedStateMachine):
    """Clients send and disconnect, deadlines pass, batches run or fail, close comes.

    Between two steps the batching thread stands still, in the engine or at an empty
    queue, so that the same steps always have the same outcome.
    """

    def __init__(self):
        super().__init__()
        self.engine = Puppet()
        self.batcher = Batcher(
            executor(self.engine, MAX_BATCH_SIZE),
            AT_ONCE,
            MAX_BATCH_SIZE * MAX_ENQUEUED_BATCHES,
            Notes(),
            wait=self.engine.rest,
        )
        self.numbers = itertools.count()
        self.clients: list[Client] = []
        self.running: list[Client] = []
        # Indexes of those batches of the engine that failed.
        self.failed: set[int] = set()
        self.closed = self.timed_out = False
        self.batcher.start()
        self.begin_batch()

    def begin_batch(self):
        batch = self.engine.begun()
        values = set() if batch is None else set(batch[:, 0].tolist())
        self.running = [c for c in self.clients if not values.isdisjoint(c.values)]
        for client in self.running:
            assert not client.disconnected
            assert not client.late
            client.run |= values.intersection(client.values)

    def unanswered(self):
        return [client for client in self.clients if not client.job.is_answered()]

    def queued(self):
        """Return the number of rows that have not run of unanswered jobs."""
        return sum(len(c.values) - len(c.run) for c in self.unanswered())

    @rule(
        rows=st.integers(1, MAX_ROWS + 1),
        width=st.integers(1, 2),
        name=st.sampled_from("ab"),
        disconnected=st.booleans(),
    )
    def submit(self, rows, width, name, disconnected):
        values = [float(n) for n in itertools.islice(self.numbers, rows)]
        client = Client(values, width, disconnected)
        client.job = job(*values, width=width, is_abandoned=disconnected, client=name)
        not_run = sum(len(c.values) - len(c.run) for c in self.clients)
        try:
            self.batcher.submit(client.job)
        except TooLarge:
            assert rows > MAX_ROWS
        except Stopping:
            assert self.closed
        except QueueFull:
            # Dead rows may stay in the queue until they would be taken.
            assert rows + not_run > MAX_ROWS
        else:
            assert not self.closed
            self.clients.append(client)
            assert self.queued() <= MAX_ROWS
            if not self.running:
                self.begin_batch()

    @precondition(lambda self: self.running and not self.closed)
    @rule(error=st.sampled_from([None, None, ValueError(), SystemExit()]))
    def end_batch(self, error):
        if error is not None:
            self.failed.add(len(self.engine.batches) - 1)
            for client in self.running:
                client.failed = True
        self.engine.finish(error)
        self.begin_batch()

    @precondition(lambda self: self.unanswered())
    @rule(index=INDEXES)
    def disconnect(self, index):
        unanswered = self.unanswered()
        client = unanswered[index % len(unanswered)]
        client.disconnected = True
        client.job.abandon()

    @precondition(lambda self: self.unanswered())
    @rule(index=INDEXES)
    def pass_deadline(self, index):
        unanswered = self.unanswered()
        client = unanswered[index % len(unanswered)]
        client.late = True
        client.job.deadline = time.monotonic()

    @precondition(lambda self: self.clients)
    @rule(times_out=st.booleans())
    def close(self, times_out):
        if not times_out:
            self.engine.unblock()
        self.timed_out = self.timed_out or times_out
        self.closed = True
        self.batcher.close(0 if times_out else 10)
        assert not self.unanswered()

    def teardown(self):
        self.engine.unblock()
        self.batcher.close(10)
        assert self.engine.closed
        assert not self.unanswered()
        assert all(len(batch) <= MAX_BATCH_SIZE for batch in self.engine.batches)
        batches = self.engine.seen()
        begun = list(dict.fromkeys(value for batch in batches for value in batch))
        computed = [
            value
            for index, batch in enumerate(batches)
            for value in batch
            if index not in self.failed
        ]
        assert len(computed) == len(set(computed)), "a row was computed twice"
        for width, name in itertools.product((1, 2), "ab"):
            sent = {
                value
                for client in self.clients
                if (client.width, client.job.client) == (width, name)
                for value in client.values
            }
            in_order = [value for value in begun if value in sent]
            assert in_order == sorted(in_order), "a job overtook one of its own client"
        for client in self.clients:
            ran = [value for value in begun if value in client.values]
            assert ran == client.values[: len(ran)], "a row was left out"
            self.check_answer(client, ran, set(computed))

    def check_answer(self, client, ran, computed):
        answer = outcome(client.job)
        if isinstance(answer, list):
            assert answer == client.values == ran
            assert computed.issuperset(answer)
        elif isinstance(answer, ModelFailed):
            assert client.failed
            assert not computed.issuperset(client.values)
        elif isinstance(answer, Stopping):
            assert self.timed_out
        elif isinstance(answer, QueueFull):
            assert not ran
        else:
            expected = {Late: client.late, Abandoned: client.disconnected}
            assert expected[type(answer)]
            assert not computed.issuperset(client.values)


def test_each_accepted_job_gets_one_correct_answer():
    """Each accepted job gets its own rows in order, or the error that fits its fate."""
    run_state_machine_as_test(
        BatcherMachine,
        settings=settings(max_examples=40, stateful_step_count=25),
    )


def _batched(engine, sizes, notes):
    return Batcher(executor(engine, 0, notes, sizes), AT_ONCE, 1000, notes)


def _unbatched(engine, sizes, notes):
    return Unbatched(executor(engine, 0, notes, sizes), 100 * sizes[-1])


@pytest.mark.parametrize("make", [_batched, _unbatched], ids=["batched", "unbatched"])
@given(
    sizes=st.sets(st.integers(1, 9), min_size=1).map(sorted),
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=6),
)
def test_padding_changes_no_answer(make, sizes, counts):
    """The engine runs allowed sizes only, padded with the last row of each batch."""
    engine, notes, numbers = Echo(), Notes(), itertools.count(1)
    runner = make(engine, sizes, notes)
    jobs = [job(*itertools.islice(numbers, count)) for count in counts]
    for one in jobs:
        runner.submit(one)
    runner.start()
    runner.close(10)
    begin = 1
    for one, count in zip(jobs, counts, strict=True):
        assert outcome(one) == list(range(begin, begin + count))
        begin += count
    assert {len(batch) for batch in engine.batches} <= set(sizes)
    run = []
    for batch, rows in zip(engine.seen(), notes.batches, strict=True):
        assert len(batch) - rows < max(
            b - a for a, b in itertools.pairwise([0, *sizes])
        )
        assert set(batch[rows:]) <= {batch[rows - 1]}
        run += batch[:rows]
    assert run == list(range(1, begin))
