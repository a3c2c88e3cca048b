"""Send rounds of malformed requests, and check the answers."""

import itertools
import random
from dataclasses import replace
from http import HTTPStatus

from bench.fuzz import models
from bench.fuzz.corpus import from_corpus
from bench.fuzz.described import described
from bench.fuzz.edits import damaged_bytes
from bench.fuzz.raw import Talk, talks
from bench.fuzz.report import Report, run
from testing.contract import Contract, read_document
from testing.exchange import Connection, NotHttp, Request
from testing.server import Server

# Each source with its share, and the requests in a round of it.
_SOURCES = {
    "described": (described, 0.1, 40),
    "corpus": (from_corpus, 0.5, 400),
    "raw": (talks, 0.4, 300),
}


def fuzz(server: Server, requests: int, seed: int) -> Report:
    """Send `requests` malformed requests to a server of `models`, and check it."""
    sender, numbers = _Sender(server.port), itertools.count(seed * 1_000_000)

    def send_round(report: Report) -> None:
        # Take the source that is furthest behind its share.
        source = min(_SOURCES, key=lambda each: report.bad[each] / _SOURCES[each][1])
        sender.send_round(report, source, next(numbers))

    return run(server, requests, send_round)


class _Sender:
    """Sends the requests of a source, and checks each answer."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port)
        self._contract = Contract(read_document())
        self._report, self._source = Report(), ""

    def send_round(self, report: Report, source: str, number: int) -> None:
        """Send one round up to the first problem; `number` is the seed."""
        self._report, self._source = report, source
        rng = random.Random(number)
        make, _, size = _SOURCES[source]
        for each in make(number, size):
            if isinstance(each, Talk):
                self._send(each)
            else:
                request = _with_key(each, rng)
                self._send(request)
                # Also with damage to the request line and the headers, but not of
                # HEAD, as with another method its answer has a body, nor of what
                # shows settings, some of which are paths.
                is_plain = request.method != "HEAD" and "/page/" not in request.path
                if is_plain and rng.random() < 0.5:
                    self._send(Talk((damaged_bytes(request.wire(), rng),)))
            if report.problems:
                break
        self._connection.close()

    def _send(self, sent: Request | Talk) -> None:
        """Send a request or bytes, count its answers, and check each of them."""
        request = sent if isinstance(sent, Request) else None
        answers = []
        try:
            if isinstance(sent, Request):
                answers = [self._connection.ask(sent)]
            else:
                answers = self._connection.talk(
                    sent.parts, half_close=sent.half_close, pause_s=sent.pause_s
                )
        except (OSError, NotHttp) as error:
            self._report.note(repr(error), sent)
        if answers and all(each.status == HTTPStatus.OK for each in answers):
            self._report.good += 1
        else:
            self._report.bad[self._source] += 1 if request else sent.requests
        for answer in answers:
            self._report.statuses[str(answer.status)] += 1
            problem = self._contract.problem(request, answer)
            if problem is not None:
                self._report.note(f"{problem}: {answer.body[:200]!r}", sent)
        closed = [each.headers.get("connection", "").lower() for each in answers]
        if "close" in closed[:-1]:
            self._report.note("an answer after Connection: close", sent)


def _with_key(request: Request, rng: random.Random) -> Request:
    """Return the request, mostly with a valid API key, unless it has a key."""
    names = {name.lower() for name, _ in request.headers}
    if "authorization" in names or rng.random() < 0.05:
        return request
    return replace(request, headers=(*request.headers, models.AUTHORIZATION))
