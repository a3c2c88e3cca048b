"""Send an attack to a new server beside polite clients, and measure what it costs."""

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import simdjson
import uvloop

from bench.figures import percentile
from bench.reliability.server import raise_descriptor_limit
from bench.strangers import bodies
from bench.strangers.attacks import Attack
from bench.strangers.meter import Meter, Spent
from testing.open_loop import Client, client_of
from testing.open_loop_requests import Outcome, Request
from testing.server import Server, serving

# Of polite predictions; a small picture goes with each fourth of them.
_RATE = 20
_PICTURE_EVERY = 4
_PICTURE = "picture"
_WARM_UP_S, _IDLE_S = 2.0, 3.0
_LOOK_EVERY_S = 0.1
_Answers: TypeAlias = Coroutine[Any, Any, list[Outcome]]


@dataclass
class Cost:
    """What an attack cost a server; `tree` says which one.

    `answers` counts statuses and other ends, the slowest of `answered_s`. Of `polite`
    predictions `polite_lost` had no right answer; the times are of the others.
    `reference_s` is the CPU time of simdjson and NumPy for the numbers of an honest
    body. `problem` says why the measurement ended early.
    """

    tree: str
    attack: str
    answers: dict[str, int] = field(default_factory=dict)
    answered_s: float = 0.0
    spent: Spent = field(default_factory=Spent)
    polite: int = 0
    polite_lost: int = 0
    polite_p99_s: float = 0.0
    polite_max_s: float = 0.0
    picture_max_s: float = 0.0
    reference_s: float | None = None
    problem: str = ""


def measure(tree: str, root: Path, models: Path, attack: Attack) -> Cost:
    """Start a server from the tree at `root` and measure one attack.

    Raises:
        AssertionError: the server ended or was not ready in time.
    """
    raise_descriptor_limit()
    cost = Cost(tree, attack.name)
    request = attack.request()
    if attack.numbers:
        cost.reference_s = reference_s(request.body, attack.numbers)
    settings = {"model_dir": str(models), "default_model": "digits"}
    with serving(
        *("--threads=20",), root=root, own_session=True, check_exit=False, **settings
    ) as server:
        # asyncio's transports move the rest of a large body at each write.
        uvloop.run(_attack(server, attack, request, cost))
    return cost


def reference_s(body: bytes, numbers: str) -> float:
    """Return the CPU seconds of simdjson and NumPy for the floats at a JSON pointer."""
    times = []
    for _ in range(3):
        began_at = time.process_time()
        found = simdjson.Parser().parse(body).at_pointer(numbers)
        np.frombuffer(found.as_buffer(of_type="d")).astype(np.float32)
        times.append(time.process_time() - began_at)
    return min(times)


def polite_requests(ended: Callable[[], bool]) -> Iterator[Request]:
    """Yield small predictions and pictures with the times when they are due."""
    prediction, picture = bodies.digit(), replace(bodies.small_png(), tag=_PICTURE)
    for number in itertools.count():
        if ended():
            return
        yield replace(prediction, at_s=number / _RATE)
        if number % _PICTURE_EVERY == 0:
            yield replace(picture, at_s=number / _RATE)


async def _attack(server: Server, attack: Attack, request: Request, cost: Cost) -> None:
    """Attack the server beside polite clients until it is quiet again."""
    ended = asyncio.Event()
    seen: list[Outcome] = []
    async with client_of(server.port) as polite, client_of(server.port) as attacker:
        load = asyncio.create_task(
            polite.open_loop(polite_requests(ended.is_set), outcomes=seen)
        )
        await asyncio.sleep(_WARM_UP_S)
        meter = Meter(server)
        await asyncio.sleep(_IDLE_S)
        async with silent_connections(server.port, attack.silent):
            meter.begin()
            began_s = polite.now_s()
            sent = asyncio.gather(*_clients(attacker, attack, request))
            cost.problem = await _until_quiet(meter, sent, attack.settle_s)
            ended_s = polite.now_s()
            ended.set()
            await load
            _note_answers(cost, list(itertools.chain.from_iterable(await sent)))
    cost.spent = meter.spent(attack.waits_s)
    _note_polite(cost, [one for one in seen if began_s <= one.request.at_s < ended_s])


def _clients(client: Client, attack: Attack, request: Request) -> Iterator[_Answers]:
    """Yield what each attacking client does."""

    async def run(sends: Request) -> list[Outcome]:
        return [await client.ask(sends) for _ in range(attack.each)]

    yield from (run(request) for _ in range(attack.clients))
    if attack.silent:
        yield run(Request(0, path="/healthz"))


@contextlib.asynccontextmanager
async def silent_connections(port: int, count: int) -> AsyncIterator[None]:
    """Hold connections open that send nothing."""
    opened = [asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    writers = [writer for _, writer in await asyncio.gather(*opened)]
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


async def _until_quiet(meter: Meter, sent: asyncio.Future[Any], settle_s: float) -> str:
    """Watch the server until it has answered and is quiet; return a problem."""
    settled_s = None
    while not (problem := meter.look()):
        if sent.done():
            settled_s = settled_s or meter.now_s() + settle_s
            if meter.now_s() >= settled_s and meter.is_quiet():
                break
        await asyncio.sleep(_LOOK_EVERY_S)
    return problem


def _note_answers(cost: Cost, outcomes: list[Outcome]) -> None:
    ends = [str(one.status or one.end) for one in outcomes]
    cost.answers = dict(Counter(ends))
    cost.answered_s = max(one.ended_s - one.sent_s for one in outcomes)


def _note_polite(cost: Cost, outcomes: list[Outcome]) -> None:
    pictures = [one for one in outcomes if one.request.tag == _PICTURE]
    predictions = [one for one in outcomes if one.request.tag != _PICTURE]
    latencies_s = [one.latency_s for one in predictions if one.is_good()]
    cost.polite = len(predictions)
    cost.polite_lost = cost.polite - len(latencies_s)
    cost.polite_p99_s = percentile(latencies_s, 99)
    cost.polite_max_s = max(latencies_s, default=0.0)
    cost.picture_max_s = max((one.latency_s for one in pictures), default=0.0)
