"""Chaos: workers are killed at random while clients are served.

A victim is stopped first, so that the kernel can tell which connections it holds, and
killed then. Only requests on these may end without an answer.
"""

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bench.reliability.processes import client_ports
from bench.reliability.report import Report, tally
from bench.reliability.set_up import GOOD, device, simulated, with_client
from testing.open_loop import Client
from testing.open_loop_requests import End, Outcome, poisson, rows_request
from testing.server import Server

_WORKERS = 3
_RATE = 150.0
_KILL_EVERY_S = 3.0
# Seconds until a new worker has loaded its model.
_WHOLE_WITHIN_S = 20.0
_LOOK_S = 0.1
_AFTERWARDS = 200


@dataclass(frozen=True)
class _Kill:
    """When a worker was killed, and the ports of its clients."""

    at_s: float
    ports: frozenset[int]
    whole_after_s: float

    def explains(self, one: Outcome) -> bool:
        """Whether a request was on its way on one of the connections."""
        return one.port in self.ports and one.ended_s >= self.at_s


def chaos(seconds: float = 60, app: str = GOOD) -> Report:
    """Serve an even mix for so long and kill one of three workers every 3 seconds."""
    simulation = device(base_ms=10, per_row_ms=0.1)
    arguments = (f"--workers={_WORKERS}", "--threads=32")
    with simulated(simulation, *arguments, app=app) as server:
        outcomes, kills, after = with_client(
            server, partial(_measure, server=server, seconds=seconds)
        )
    return _report(outcomes, kills, after, seconds)


async def _measure(
    client: Client, server: Server, seconds: float
) -> tuple[list[Outcome], list[_Kill], list[Outcome]]:
    chance = random.Random(1)  # noqa: S311 # not a secret
    requests = [
        rows_request(at_s, number)
        for number, at_s in enumerate(poisson(_RATE, seconds))
    ]
    load = asyncio.create_task(client.open_loop(requests))
    kills = []
    await asyncio.sleep(_KILL_EVERY_S / 2)
    while client.now_s() + _KILL_EVERY_S / 2 < seconds:
        began_at = client.now_s()
        kills.append(await _kill(client, server, chance))
        await asyncio.sleep(max(began_at + _KILL_EVERY_S - client.now_s(), 0))
    outcomes = await load
    client.close()
    afterwards = [rows_request(n / _RATE, n) for n in range(_AFTERWARDS)]
    return outcomes, kills, await client.open_loop(afterwards, patience_s=10)


async def _kill(client: Client, server: Server, chance: random.Random) -> _Kill:
    before = set(server.workers())
    loaded = server.loaded()
    victim = chance.choice(sorted(before))
    os.kill(victim, signal.SIGSTOP)
    ports = frozenset(client_ports(victim, server.port))
    at_s = client.now_s()
    os.kill(victim, signal.SIGKILL)
    while client.now_s() - at_s < _WHOLE_WITHIN_S:
        await asyncio.sleep(_LOOK_S)
        now = set(server.workers())
        if len(now) == _WORKERS and now != before and server.loaded() > loaded:
            return _Kill(at_s, ports, client.now_s() - at_s)
    return _Kill(at_s, ports, float("inf"))


def _report(
    outcomes: Sequence[Outcome],
    kills: Sequence[_Kill],
    after: Sequence[Outcome],
    seconds: float,
) -> Report:
    report = Report("Chaos")
    report.notes += [
        f"{_WORKERS} workers, simulated device, 10 ms + 0.1 ms a row; {_RATE:.0f} "
        f"requests/s (Poisson) for {seconds:.0f} s, a worker killed with SIGKILL every "
        f"{_KILL_EVERY_S:.0f} s, {len(kills)} times. {tally(outcomes)}."
    ]
    lost = [one for one in outcomes if one.end is End.BROKEN]
    strange = [one for one in lost if not any(kill.explains(one) for kill in kills)]
    report.promise(
        "lost that no killed worker held",
        "0",
        f"{len(strange)} of {len(lost)} lost",
        held=not strange,
    )
    others = [one for one in outcomes if one.end is not End.BROKEN]
    failed = [one for one in others if not one.is_good()]
    report.promise(
        "others that were not answered right",
        "0",
        f"{len(failed)} of {len(others):,}",
        held=not failed,
    )
    slowest_s = max((kill.whole_after_s for kill in kills), default=float("inf"))
    report.promise(
        "whole again after a kill",
        f"<= {_WHOLE_WITHIN_S:.0f} s",
        f"{slowest_s:.1f} s at most, {len(kills)} kills",
        held=slowest_s <= _WHOLE_WITHIN_S,
    )
    bad = [one for one in after if not one.is_good()]
    report.promise(
        "requests that failed afterwards",
        "0",
        f"{len(bad)} of {len(after)}",
        held=len(after) == _AFTERWARDS and not bad,
    )
    return report
