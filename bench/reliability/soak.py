"""Soak: a mix of requests for a long time, while versions are swapped.

Memory, threads and descriptors are compared after a warm-up and at the end, each time
without clients and with the same version served.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from bench.reliability import server as basket
from bench.reliability import soak_mix as mix
from bench.reliability.report import Report, tally
from bench.reliability.server import Held
from testing.open_loop import Client
from testing.open_loop_requests import Outcome
from testing.server import Server, serving, simulated_models
from testing.simulated import GOOD, device

_WORKERS = 2
_THREADS = 4
_SWAP_EVERY_S = 4.0
_LONGEST_WARM_UP_S = 60.0
# Seconds until every worker has unloaded a removed version.
_UNLOADED_S = 3.0
_GIVE_UP_S = 15.0
_MOST_ROUNDS = 10
_DEVICE = device(base_ms=5, per_row_ms=0.05)
_ANSWERED = "basket_requests_total"


def soak(
    seconds: float = 600,
    app: str = GOOD,
    growth: float = 0.02,
    rate: float = 100,
) -> Report:
    """Serve a mix of requests, of which up to a minute is warm-up.

    `growth` is the share by which memory may grow after that; `rate` is requests/s.
    """
    workers = (f"--workers={_WORKERS}", f"--threads={_THREADS}")
    with tempfile.TemporaryDirectory() as folder:
        models = simulated_models(Path(folder), m=_DEVICE)
        options = {"app": app, "own_session": True, "request_timeout_ms": "5000"}
        with serving(*workers, model_dir=models, **options) as server:
            run = _Run(server, Path(folder) / "m" / "2", rate)
            return basket.with_client(server, run.soak, seconds, growth)


@dataclass
class _Run:
    """A running soak and its outcomes."""

    server: Server
    version: Path
    rate: float
    outcomes: list[Outcome] = field(default_factory=list)
    swaps: int = 0

    async def soak(self, client: Client, seconds: float, growth: float) -> Report:
        """Warm up, serve the mix, and return what was held."""
        warm_up_s = min(seconds / 3, _LONGEST_WARM_UP_S)
        async with basket.counted(client, _ANSWERED) as grown:
            await self._fill_threads(client)
            warm = await self._phase(client, warm_up_s, seed=1)
            end = await self._phase(client, seconds - warm_up_s, seed=2)
        report = Report(
            "Soak",
            f"{_WORKERS} workers with {_THREADS} threads, simulated device, "
            f"{self.rate:.0f} requests/s (Poisson) of good, large, bad, slow and "
            f"dropped ones for {seconds:.0f} s, a version that comes or goes every "
            f"{_SWAP_EVERY_S:.0f} s: {tally(self.outcomes)}.",
        )
        report.all_good("requests without their own answer", self.outcomes)
        extra = client.unexpected + grown[_ANSWERED] - len(self.outcomes)
        report.promise("answered more or less than once", "0", extra, extra == 0)
        swaps, what = self._loads() / _WORKERS, "version swaps, in each worker"
        report.promise(what, f"{self.swaps}", f"{swaps:g}", swaps == self.swaps)
        most_mib, before = (1 + growth) * warm.mib, f", before {warm.mib:.1f} MiB"
        report.at_most("memory after the warm-up", end.mib, most_mib, " MiB", before)
        report.at_most("threads after the warm-up", end.threads, warm.threads)
        most = warm.descriptors
        report.at_most("descriptors after the warm-up", end.descriptors, most)
        return report

    async def _fill_threads(self, client: Client) -> None:
        """Make each worker start all its threads, which it starts as it needs them.

        The kernel chooses the worker of a new connection, so there may be several
        rounds: until one adds no thread and all workers have equally many, or until a
        request is not answered right.
        """
        clients = 6 * _WORKERS * _THREADS
        threads: list[int] = []
        for _ in range(_MOST_ROUNDS):
            before = threads
            requests = (client.ask(mix.SLOW_AND_LARGE) for _ in range(clients))
            health = (client.fetch("/healthz") for _ in range(clients))
            seen, _ = await asyncio.gather(
                asyncio.gather(*requests), asyncio.gather(*health)
            )
            self.outcomes += seen
            client.close()
            threads = [Held.by(pid).threads for pid in self.server.workers()]
            are_full = threads == before and len(set(threads)) == 1
            if are_full or not all(one.is_good() for one in seen):
                break

    async def _phase(self, client: Client, seconds: float, seed: int) -> Held:
        """Serve the mix, and return what the workers hold without clients."""
        async with basket.beside(self._swap()):
            requests = mix.requests(self.rate, seconds, seed)
            await client.open_loop(requests, _GIVE_UP_S, self.outcomes)
        await self._until_loaded()
        if self.version.exists():
            self._add_or_remove()
            await self._until_loaded()
        client.close()
        await asyncio.sleep(_UNLOADED_S)
        return await Held.at_rest(*self.server.workers())

    async def _swap(self) -> None:
        while True:
            await asyncio.sleep(_SWAP_EVERY_S)
            await self._until_loaded()
            self._add_or_remove()
            held = Held.by(*self.server.workers())
            print(f"{len(self.outcomes):,} requests ended; {held}", file=sys.stderr)

    def _add_or_remove(self) -> None:
        """Add version 2 with an atomic rename, or remove it."""
        self.swaps += 1
        if self.version.exists():
            shutil.rmtree(self.version)
            return
        hidden = self.version.with_name(".2")
        hidden.mkdir()
        (hidden / "simulated.json").write_text(json.dumps(_DEVICE))
        hidden.rename(self.version)

    async def _until_loaded(self) -> None:
        """Wait until each worker has followed all swaps, but not forever."""

        async def is_loaded() -> bool:
            return self._loads() >= self.swaps * _WORKERS

        await basket.until(is_loaded, _GIVE_UP_S)

    def _loads(self) -> int:
        """Return how many versions have been loaded since the start, over workers."""
        return self.server.loaded() - _WORKERS
