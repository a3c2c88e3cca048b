"""Send rounds of malformed requests from several processes, and check the answers."""

import itertools
import multiprocessing
import random
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from http import HTTPStatus

from bench.fuzz import models
from bench.fuzz.corpus import from_corpus
from bench.fuzz.described import described
from bench.fuzz.raw import Talk, damaged_request, talks
from bench.fuzz.report import Report
from bench.fuzz.watch import Watch
from testing.contract import Contract, read_document
from testing.exchange import Answer, Connection, NotHttp, Request
from testing.server import Server

# Shares of the sources, and the requests in a round of each.
SHARES = {"described": 0.1, "corpus": 0.5, "raw": 0.4}
_ROUND = {"described": 40, "corpus": 400, "raw": 300}
_SIDE_BY_SIDE = 2


class _Sender:
    """Sends the requests of a source, and checks each answer."""

    def __init__(self, port: int, source: str, rng: random.Random) -> None:
        self.report = Report()
        self._source = source
        self._connection = Connection(port)
        self._contract = Contract(read_document())
        self._rng = rng

    def with_key(self, request: Request) -> Request:
        """Return the request, mostly with a valid API key, unless it has a key."""
        names = {name.lower() for name, _ in request.headers}
        if "authorization" in names or self._rng.random() < 0.05:
            return request
        key = ("Authorization", f"Bearer {models.KEY}")
        return replace(request, headers=(*request.headers, key))

    def ask(self, request: Request) -> None:
        try:
            answer = self._connection.ask(request)
        except (OSError, NotHttp) as error:
            self._count([], 1)
            self.report.note(repr(error), request)
            return
        self._count([answer], 1)
        self._check(request, answer, request)

    def talk(self, talk: Talk) -> None:
        answers = []
        try:
            answers = self._connection.talk(
                talk.parts, half_close=talk.half_close, pause_s=talk.pause_s
            )
        except (OSError, NotHttp) as error:
            self.report.note(repr(error), talk)
        self._count(answers, talk.requests)
        for answer in answers:
            self._check(None, answer, talk)
        closed = [each.headers.get("connection", "").lower() for each in answers]
        if "close" in closed[:-1]:
            self.report.note("an answer after Connection: close", talk)

    def _count(self, answers: list[Answer], requests: int) -> None:
        if answers and all(each.status == HTTPStatus.OK for each in answers):
            self.report.good += 1
        else:
            self.report.bad[self._source] += requests

    def _check(self, request: Request | None, answer: Answer, sent: object) -> None:
        self.report.statuses[str(answer.status)] += 1
        problem = self._contract.problem(request, answer)
        if problem is not None:
            self.report.note(f"{problem}: {answer.body[:200]!r}", sent)

    def close(self) -> None:
        self._connection.close()


def run_round(port: int, source: str, number: int) -> Report:
    """Send one round of a source up to the first problem; `number` is the seed."""
    rng = random.Random(number)
    sender = _Sender(port, source, rng)
    make = {"described": described, "corpus": from_corpus, "raw": talks}[source]
    for each in make(number, _ROUND[source]):
        if isinstance(each, Talk):
            sender.talk(each)
        else:
            request = sender.with_key(each)
            sender.ask(request)
            # Also with damage to the request line and the headers, but not of HEAD:
            # with another method its answer has a body.
            if request.method != "HEAD" and rng.random() < 0.5:
                sender.talk(damaged_request(request, rng))
        if sender.report.problems:
            break
    sender.close()
    return sender.report


def senders() -> ProcessPoolExecutor:
    """Return a pool of sending processes, for any number of servers."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(_SIDE_BY_SIDE, mp_context=context)


def fuzz(
    server: Server,
    pool: ProcessPoolExecutor,
    requests: int,
    seed: int,
    progress: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Send `requests` malformed requests to a server of `models`, and check it.

    End at the first round in which something is wrong.
    """
    watch = Watch(server)
    report = Report(watch=watch)
    with watch:
        for made in _rounds(server.port, pool, requests, seed, report):
            report.add(made)
            watch.look(report.bad.total() >= requests / 10)
            report.problems += watch.problems()
            progress(report)
    if not report.problems:
        report.problems += watch.problems()
    return report


def _rounds(
    port: int, pool: ProcessPoolExecutor, requests: int, seed: int, report: Report
) -> Iterator[Report]:
    """Yield rounds as they end, until `report` has enough requests."""
    numbers = itertools.count(seed * 1_000_000)
    running: set[Future[Report]] = set()
    while report.bad.total() < requests and not report.problems:
        while len(running) < _SIDE_BY_SIDE:
            # That which is furthest behind its share.
            source = min(SHARES, key=lambda each: report.bad[each] / SHARES[each])
            running.add(pool.submit(run_round, port, source, next(numbers)))
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            yield future.result()
    for future in running:
        yield future.result()
