"""Chaos: workers are killed at random under load.

A worker is suspended first, so that its connections can be listed, and then killed.
Only requests on these connections may end without an answer.
"""

import asyncio
import os
import random
import signal
from dataclasses import dataclass

import psutil

from bench.reliability.report import Report, tally
from bench.reliability.server import until, with_client
from testing.open_loop import Client
from testing.open_loop_requests import End, Outcome, poisson, rows_request
from testing.server import Server
from testing.simulated import GOOD, device, simulated

_WORKERS = 3
_RATE = 150.0
_KILL_EVERY_S = 3.0
# Seconds until a new worker has loaded its model.
_RECOVERED_WITHIN_S = 20.0
_AFTERWARDS = 200


@dataclass(frozen=True)
class _Kill:
    """When a worker was killed, its clients' ports, and the seconds to replace it."""

    at_s: float
    ports: frozenset[int]
    recovered_after_s: float

    def explains(self, one: Outcome) -> bool:
        """Return whether a request was pending on one of the connections."""
        return one.port in self.ports and one.ended_s >= self.at_s


def chaos(seconds: float = 60, app: str = GOOD) -> Report:
    """Kill one of three workers every 3 seconds under a steady load."""
    arguments = (f"--workers={_WORKERS}", "--threads=32")
    with simulated(device(base_ms=10, per_row_ms=0.1), *arguments, app=app) as server:
        outcomes, kills, after = with_client(server, _measure, server, seconds)
    report = Report(
        "Chaos",
        f"{_WORKERS} workers, simulated device, 10 ms + 0.1 ms a row; {_RATE:.0f} "
        f"requests/s (Poisson) for {seconds:.0f} s, a worker killed with SIGKILL every "
        f"{_KILL_EVERY_S:.0f} s, {len(kills)} times. {tally(outcomes)}.",
    )
    lost = [one for one in outcomes if one.end is End.BROKEN]
    strange = [one for one in lost if not any(kill.explains(one) for kill in kills)]
    report.none_of("lost that no killed worker held", strange, len(lost))
    others = [one for one in outcomes if one.end is not End.BROKEN]
    report.all_good("others that were not answered right", others)
    slowest_s = max((kill.recovered_after_s for kill in kills), default=float("inf"))
    what = "all workers ready after a kill, the slowest"
    report.at_most(what, slowest_s, _RECOVERED_WITHIN_S, " s")
    report.all_good("requests that failed afterwards", after)
    return report


async def _measure(
    client: Client, server: Server, seconds: float
) -> tuple[list[Outcome], list[_Kill], list[Outcome]]:
    chance = random.Random(1)  # noqa: S311 # not a secret
    times = enumerate(poisson(_RATE, seconds))
    requests = [rows_request(at_s, number) for number, at_s in times]
    load = asyncio.create_task(client.open_loop(requests))
    kills = []
    await asyncio.sleep(_KILL_EVERY_S / 2)
    while client.now_s() + _KILL_EVERY_S / 2 < seconds:
        began_at = client.now_s()
        victim = chance.choice(sorted(server.workers()))
        kills.append(await _kill(client, server, victim))
        await asyncio.sleep(max(began_at + _KILL_EVERY_S - client.now_s(), 0))
    outcomes = await load
    client.close()
    afterwards = [rows_request(n / _RATE, n) for n in range(_AFTERWARDS)]
    return outcomes, kills, await client.open_loop(afterwards, wait_s=10)


async def _kill(client: Client, server: Server, victim: int) -> _Kill:
    loaded = server.loaded()
    os.kill(victim, signal.SIGSTOP)
    held = psutil.Process(victim).net_connections("tcp")
    ports = (each.raddr.port for each in held if each.raddr)
    at_s = client.now_s()
    os.kill(victim, signal.SIGKILL)

    async def is_replaced() -> bool:
        workers = server.workers()
        is_full = len(workers) == _WORKERS and victim not in workers
        return is_full and server.loaded() > loaded

    await until(is_replaced, _RECOVERED_WITHIN_S)
    took_s = client.now_s() - at_s if await is_replaced() else float("inf")
    return _Kill(at_s, frozenset(ports), took_s)
