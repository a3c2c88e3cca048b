"""Whatever happens in whatever order: one right answer for each accepted job."""

import itertools
import time
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.errors import Abandoned, Late, ModelFailed, QueueFull, Stopping, TooLarge
from app.serving.batcher import Batcher
from app.serving.job import Job
from app.serving.release import Adaptive
from tests.support.engines import Puppet
from tests.support.jobs import Notes, job, outcome

MAX_BATCH_SIZE, MAX_ENQUEUED_BATCHES = 4, 3
MAX_ROWS = MAX_BATCH_SIZE * MAX_ENQUEUED_BATCHES
PLACES = st.integers(0, 1000)


@dataclass(eq=False)
class Client:
    """One accepted request: rows with numbers that no other request has."""

    values: list[float]
    width: int
    job: Job | None = None
    gone: bool = False
    late: bool = False
    failed: bool = False
    rows_run: int = 0

    def waits(self) -> bool:
        """Say whether it has no answer that this test knows of."""
        return not self.failed and self.rows_run < len(self.values)

    def will_run(self) -> bool:
        return self.waits() and not self.gone and not self.late


class Till(RuleBasedStateMachine):
    """Clients come, go and lose patience; batches run or fail; and the till closes."""

    def __init__(self):
        super().__init__()
        self.engine = Puppet()
        self.batcher = Batcher(
            self.engine, Adaptive(), MAX_BATCH_SIZE, MAX_ENQUEUED_BATCHES, Notes()
        )
        self.batcher.start()
        self.numbers = itertools.count()
        self.clients: list[Client] = []
        self.closed = self.hurried = False

    def waiting(self):
        return [client for client in self.clients if client.waits()]

    def rows_to_run(self):
        return sum(
            len(client.values) - client.rows_run
            for client in self.clients
            if client.will_run()
        )

    @rule(
        rows=st.integers(1, MAX_ROWS + 1),
        width=st.integers(1, 2),
        fate=st.sampled_from(["waits", "waits", "gone", "late"]),
    )
    def submit(self, rows, width, fate):
        values = [float(n) for n in itertools.islice(self.numbers, rows)]
        client = Client(values, width, gone=fate == "gone", late=fate == "late")
        client.job = job(*values, width=width, is_gone=lambda: client.gone)
        if client.late:
            client.job.deadline = time.monotonic()
        try:
            self.batcher.submit(client.job)
        except TooLarge:
            assert rows > MAX_ROWS
        except Stopping:
            assert self.closed
        except QueueFull:
            assert rows + sum(len(each.values) for each in self.waiting()) > MAX_ROWS
        else:
            assert rows <= MAX_ROWS
            assert not self.closed
            self.clients.append(client)
            # One batch may have left the queue already.
            assert self.rows_to_run() <= MAX_ROWS + MAX_BATCH_SIZE

    @precondition(lambda self: any(c.will_run() for c in self.clients))
    @precondition(lambda self: not self.closed)
    @rule(error=st.sampled_from([None, None, ValueError(), SystemExit()]))
    def run_a_batch(self, error):
        batch = set(self.engine.begun()[:, 0].tolist())
        in_batch = [c for c in self.clients if not batch.isdisjoint(c.values)]
        self.engine.finish(error)
        for client in in_batch:
            client.rows_run += len(batch.intersection(client.values))
            client.failed = error is not None

    @precondition(lambda self: self.waiting())
    @rule(place=PLACES)
    def a_client_goes(self, place):
        waiting = self.waiting()
        waiting[place % len(waiting)].gone = True

    @precondition(lambda self: self.waiting())
    @rule(place=PLACES)
    def a_deadline_passes(self, place):
        waiting = self.waiting()
        client = waiting[place % len(waiting)]
        client.late = True
        client.job.deadline = time.monotonic()

    @precondition(lambda self: self.clients)
    @rule(hurried=st.booleans())
    def close(self, hurried):
        if not hurried:
            self.engine.let_go()
        self.hurried = self.hurried or hurried
        self.closed = True
        self.batcher.close(0 if hurried else 10)
        assert all(client.job.is_answered() for client in self.clients)

    def teardown(self):
        self.engine.let_go()
        self.batcher.close(10)
        assert self.engine.closed
        run = [value for batch in self.engine.seen() for value in batch]
        assert len(run) == len(set(run)), "a row ran twice"
        assert all(len(batch) <= MAX_BATCH_SIZE for batch in self.engine.batches)
        for client in self.clients:
            ran = [value for value in run if value in client.values]
            assert ran == client.values[: len(ran)], "rows ran out of order"
            self.check_answer(client, ran)
        for width in (1, 2):
            line = {v for c in self.clients if c.width == width for v in c.values}
            in_line = [value for value in run if value in line]
            assert in_line == sorted(in_line), "a job overtook one of its own shape"

    def check_answer(self, client, ran):
        answer = outcome(client.job)
        if isinstance(answer, list):
            assert answer == client.values == ran
            assert not client.failed
        elif isinstance(answer, ModelFailed):
            assert client.failed
            assert ran
        elif isinstance(answer, Stopping):
            assert self.hurried
        else:
            assert len(ran) < len(client.values)
            expected = {Late: client.late, Abandoned: client.gone}
            assert expected[type(answer)]


def test_each_accepted_job_gets_one_right_answer():
    """Each accepted job gets its own rows in order, or the one error that is true."""
    run_state_machine_as_test(
        Till,
        settings=settings(max_examples=100, stateful_step_count=25, deadline=None),
    )
