"""Rounds of bad requests, sent by processes side by side, and what came of them."""

import itertools
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from bench.fuzz import models
from bench.fuzz.contract import Contract, read_document
from bench.fuzz.described import described
from bench.fuzz.exchange import Answer, Connection, NotHttp, Request
from bench.fuzz.raw import Talk, damaged_request, talks
from bench.fuzz.shaped import shaped
from bench.fuzz.watch import GoodClient, SlowClients, Watch
from testing.server import Server

# How the bad requests are shared out, and how many one round of each makes.
SHARES = {"described": 0.1, "shaped": 0.5, "raw": 0.4}
_ROUND = {"described": 40, "shaped": 400, "raw": 300}
_SIDE_BY_SIDE = 2


@dataclass
class Round:
    """What one source sent and got; `bad` are those not answered with 200."""

    source: str
    bad: int = 0
    good: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What all rounds together came to."""

    bad: Counter[str] = field(default_factory=Counter)
    good: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    good_client_answers: int = 0
    good_client_slowest_s: float = 0.0
    largest_mib: float = 0.0
    growth_mib: float = 0.0
    seconds: float = 0.0

    def add(self, made: Round) -> None:
        """Count a round."""
        self.bad[made.source] += made.bad
        self.good += made.good
        self.statuses += made.statuses
        self.problems += made.problems

    def next_source(self) -> str:
        """The source that is furthest behind its share."""
        return min(SHARES, key=lambda source: self.bad[source] / SHARES[source])


class _Sender:
    """Sends what a source makes, and checks each answer."""

    def __init__(self, port: int, source: str, rng: random.Random) -> None:
        self.round = Round(source)
        self._connection = Connection(port)
        self._contract = Contract(read_document())
        self._rng = rng

    def with_key(self, request: Request) -> Request:
        """The request with a right API key, mostly, unless it has one."""
        names = {name.lower() for name, _ in request.headers}
        if "authorization" in names or self._rng.random() < 0.05:
            return request
        key = ("Authorization", f"Bearer {models.KEY}")
        return replace(request, headers=(*request.headers, key))

    def ask(self, request: Request) -> None:
        try:
            answer = self._connection.ask(request)
        except (OSError, NotHttp) as error:
            self._note(repr(error), request)
            self.round.bad += 1
            return
        if answer.status == HTTPStatus.OK:
            self.round.good += 1
        else:
            self.round.bad += 1
        self._check(request, answer, request)

    def talk(self, talk: Talk) -> None:
        try:
            answers = self._connection.talk(
                talk.parts, half_close=talk.half_close, pause_s=talk.pause_s
            )
        except (OSError, NotHttp) as error:
            self._note(repr(error), talk)
            answers = []
        if answers and all(each.status == HTTPStatus.OK for each in answers):
            self.round.good += 1
        else:
            self.round.bad += talk.requests
        for answer in answers:
            self._check(None, answer, talk)
        closed = [each.headers.get("connection", "").lower() for each in answers]
        if "close" in closed[:-1]:
            self._note("an answer behind the last one", talk)

    def _check(self, request: Request | None, answer: Answer, sent: object) -> None:
        self.round.statuses[answer.status] += 1
        problem = self._contract.problem(request, answer)
        if problem is not None:
            self._note(f"{problem}: {answer.body[:200]!r}", sent)

    def _note(self, problem: str, sent: object) -> None:
        self.round.problems.append(f"{problem}\n    to {str(sent)[:1500]}")

    def close(self) -> None:
        self._connection.close()


def run_round(port: int, source: str, number: int) -> Round:
    """Send one round of a source, up to the first problem; `number` seeds it."""
    rng = random.Random(number)
    sender = _Sender(port, source, rng)
    count = _ROUND[source]
    if source == "raw":
        for talk in talks(number, count):
            sender.talk(talk)
            if sender.round.problems:
                break
    else:
        make = shaped if source == "shaped" else described
        for request in map(sender.with_key, make(number, count)):
            sender.ask(request)
            if sender.round.problems:
                break
            # With damage to the first line and the headers too. (Whether an answer
            # to HEAD has a body shows in nothing but the method.)
            if request.method != "HEAD" and rng.random() < 0.5:
                sender.talk(damaged_request(request, rng))
    sender.close()
    return sender.round


def senders() -> ProcessPoolExecutor:
    """Processes that send; they can be used for one server after the other."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(_SIDE_BY_SIDE, mp_context=context)


def fuzz(
    server: Server,
    pool: ProcessPoolExecutor,
    requests: int,
    seed: int,
    progress: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Send so many bad requests to a server with `models`, and look at all that holds.

    It ends at the first round in which something is wrong.
    """
    report = Report()
    watch = Watch(server)
    good, slow = GoodClient(server), SlowClients(server.port)
    began_at = time.monotonic()
    good.start()
    slow.start()
    for made in _rounds(server.port, pool, requests, seed, report):
        report.add(made)
        watch.look(report.bad.total() >= requests / 10)
        report.problems += watch.problems()
        report.seconds = time.monotonic() - began_at
        progress(report)
    slow.stop()
    good.stop()
    report.problems += good.problems
    report.problems += watch.problems()
    report.good_client_answers = good.answered
    report.good_client_slowest_s = good.slowest_s
    report.largest_mib = max(watch.largest_mib.values(), default=0.0)
    report.growth_mib = watch.growth_mib()
    return report


def _rounds(
    port: int, pool: ProcessPoolExecutor, requests: int, seed: int, report: Report
) -> Iterator[Round]:
    """Rounds as they end, until `report` has seen enough of them."""
    numbers = itertools.count(seed * 1_000_000)
    running: set[Future[Round]] = set()
    while report.bad.total() < requests and not report.problems:
        while len(running) < _SIDE_BY_SIDE:
            source = report.next_source()
            running.add(pool.submit(run_round, port, source, next(numbers)))
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            yield future.result()
    for future in running:
        yield future.result()
