"""Send an attack to a new server beside polite clients, and measure what it costs."""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from bench import machine
from bench.figures import percentile
from bench.reliability.server import raise_descriptor_limit
from bench.strangers import bodies
from bench.strangers.attacks import Attack
from testing.open_loop import Client, client_of
from testing.open_loop_requests import Outcome, Request
from testing.processes import cpu_s, family, memory_mib
from testing.server import Server, serving

# Of polite predictions; a small picture goes with each fourth of them.
_RATE, _PICTURE_EVERY = 20, 4
_WARM_UP_S, _IDLE_S = 2.0, 3.0
_LOOK_EVERY_S = 0.1
# Quiet: for so long no more load than so many cores above that of before.
_QUIET_S, _QUIET_CORES = 3.0, 0.1
# A server is killed after so long, or with this share of the machine's free memory.
_LIMIT_S, _MOST_MEMORY = 150.0, 0.6


def measure(models: Path, attack: Attack) -> dict[str, Any]:
    """Start a server, and return the figures of one attack.

    Raises:
        AssertionError: the server ended or was not ready in time.
    """
    raise_descriptor_limit()
    request = attack.request()
    settings = {"model_dir": str(models), "default_model": "digits"}
    with serving(
        "--threads=20", own_session=True, check_exit=False, **settings
    ) as server:
        # asyncio's transports move the rest of a large body at each write.
        return uvloop.run(_attack(server, attack, request))


def polite_requests(ended: Callable[[], bool]) -> Iterator[Request]:
    """Yield small predictions and pictures with the times when they are due."""
    prediction, picture = bodies.digit(), bodies.small_png()
    for number in itertools.count():
        if ended():
            return
        yield replace(prediction, at_s=number / _RATE)
        if number % _PICTURE_EVERY == 0:
            yield replace(picture, at_s=number / _RATE)


async def _attack(server: Server, attack: Attack, request: Request) -> dict[str, Any]:
    """Attack the server beside polite clients until it is quiet again."""
    ended = asyncio.Event()
    seen: list[Outcome] = []
    async with client_of(server.port) as polite, client_of(server.port) as attacker:
        requests = polite_requests(ended.is_set)
        load = asyncio.create_task(polite.open_loop(requests, outcomes=seen))
        await asyncio.sleep(_WARM_UP_S)
        meter = _Meter(server)
        await asyncio.sleep(_IDLE_S)
        async with silent_connections(server.port, attack.silent):
            meter.begin()
            began_s = polite.now_s()
            sent = asyncio.gather(*_clients(attacker, attack, request))
            problem = await _until_quiet(meter, sent, attack.settle_s)
            ended_s = polite.now_s()
            ended.set()
            await load
            outcomes = list(itertools.chain.from_iterable(await sent))
    polite_ones = [one for one in seen if began_s <= one.request.at_s < ended_s]
    answer = _answer(outcomes) + f"; {problem}" * bool(problem)
    return {"answer": answer, **meter.spent(attack.waits_s), **_waits(polite_ones)}


def _clients(client: Client, attack: Attack, request: Request) -> Iterator[Any]:
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


async def _until_quiet(
    meter: "_Meter", sent: asyncio.Future[Any], settle_s: float
) -> str:
    """Watch the server until it has answered and is quiet; return a problem."""
    settled_s = None
    while not (problem := meter.look()):
        if sent.done():
            settled_s = settled_s or meter.at_s() + settle_s
            if meter.at_s() >= settled_s and meter.is_quiet():
                break
        await asyncio.sleep(_LOOK_EVERY_S)
    return problem


def _answer(outcomes: list[Outcome]) -> str:
    ends = Counter(one.status or one.end for one in outcomes)
    counts = ", ".join(f"{count} x {end}" for end, count in ends.items())
    slowest_s = max(one.ended_s - one.sent_s for one in outcomes)
    return f"{counts} in {slowest_s:.2f} s"


def _waits(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the latencies of polite clients; lost ones had no right answer."""
    pictures = [one.latency_s for one in outcomes if one.request.tag]
    predictions = [one for one in outcomes if not one.request.tag]
    good = [one.latency_s for one in predictions if one.is_good()]
    return {
        "p99 ms": round(percentile(good, 99) * 1000),
        "max ms": round(max(good, default=0) * 1000),
        "lost": f"{len(predictions) - len(good)} of {len(predictions)}",
        "picture max ms": round(max(pictures, default=0) * 1000),
    }


class _Meter:
    """Looks at a server's processes; kills them if they take too long or too much.

    It begins with the load of the idle time, which is subtracted later.
    """

    def __init__(self, server: Server) -> None:
        self._server, self._workers = server, server.workers()
        self._most_mib = machine.memory_bytes("MemAvailable") / 2**20 * _MOST_MEMORY
        self._idle_cores = 0.0
        self._start()

    def _start(self) -> None:
        self._pids = family(self._server.process.pid)
        self._began_at, self._began_cpu_s = time.monotonic(), cpu_s(self._pids)
        self._began_mib = self._peak_mib = self._mib = memory_mib(self._pids)
        # Seconds since the start, and CPU seconds beyond the idle load.
        self._looks = [(0.0, 0.0)]

    def begin(self) -> None:
        """End the idle time, and begin to measure the attack."""
        self.look()
        at_s, used_s = self._looks[-1]
        self._idle_cores = used_s / at_s
        for pid in self._pids:
            # Lets VmHWM begin at the present resident memory.
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._start()

    def look(self) -> str:
        """Read CPU time and memory; return why the server was killed, if it was."""
        self._pids = family(self._server.process.pid)
        at_s = time.monotonic() - self._began_at
        used_s = cpu_s(self._pids) - self._began_cpu_s - self._idle_cores * at_s
        self._looks.append((at_s, used_s))
        self._mib = memory_mib(self._pids)
        self._peak_mib = max(self._peak_mib, memory_mib(self._pids, "VmHWM"))
        if at_s > _LIMIT_S:
            problem = f"killed after {_LIMIT_S:.0f} s"
        elif self._mib > self._most_mib:
            problem = f"killed at {self._mib:.0f} MiB"
        else:
            return "" if self._server.workers() == self._workers else "a worker ended"
        os.killpg(self._server.process.pid, signal.SIGKILL)
        return problem

    def at_s(self) -> float:
        """Return the time of the last look."""
        return self._looks[-1][0]

    def is_quiet(self) -> bool:
        """Return whether the load was that of the idle time for a few seconds."""
        at_s = self.at_s()
        return at_s >= _QUIET_S and self._since(at_s - _QUIET_S) < (
            _QUIET_S * _QUIET_CORES
        )

    def spent(self, waits_s: float) -> dict[str, float]:
        """Return what was used; CPU is late that was used after `waits_s`."""
        return {
            "CPU s": round(max(self._since(0), 0.0), 1),
            "late CPU s": round(max(self._since(waits_s), 0.0), 1),
            "MiB": round(self._peak_mib - self._began_mib),
            "kept MiB": round(self._mib - self._began_mib),
        }

    def _since(self, time_s: float) -> float:
        """Return the CPU seconds since the first look at this time or later."""
        last_s = self._looks[-1][1]
        return next((last_s - cpu for at, cpu in self._looks if at >= time_s), 0.0)
