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

_WORKERS = 2
_THREADS = 4
_SWAP_EVERY_S = 4.0
_SHOW_EVERY_S = 10.0
_LONGEST_WARM_UP_S = 60.0
# Seconds until every worker has unloaded a removed version.
_UNLOADED_S = 3.0
_GIVE_UP_S = 15.0
_MOST_ROUNDS = 10
_DEVICE = basket.device(base_ms=5, per_row_ms=0.05)
_ANSWERED = "basket_requests_total"


def soak(
    seconds: float = 600,
    app: str = basket.GOOD,
    growth: float = 0.02,
    rate: float = 100,
) -> Report:
    """Serve a mix of requests, of which up to a minute is warm-up.

    `growth` is the share by which memory may grow after that; `rate` is requests/s.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(
            f"--workers={_WORKERS}",
            f"--threads={_THREADS}",
            app=app,
            own_session=True,
            model_dir=simulated_models(Path(folder), m=_DEVICE),
            request_timeout_ms="5000",
        ) as server,
    ):
        version = Path(folder) / "m" / "2"
        return basket.with_client(server, _soak, server, version, seconds, growth, rate)


async def _soak(
    client: Client,
    server: Server,
    version: Path,
    seconds: float,
    growth: float,
    rate: float,
) -> Report:
    run = _Run(server, client, version, rate)
    warm_up_s = min(seconds / 3, _LONGEST_WARM_UP_S)
    async with basket.counted(client, _ANSWERED) as grown:
        await run.fill_threads()
        warm = await run.phase(warm_up_s, seed=1)
        end = await run.phase(seconds - warm_up_s, seed=2)
    report = Report(
        "Soak",
        f"{_WORKERS} workers with {_THREADS} threads, simulated device, "
        f"{rate:.0f} requests/s (Poisson) of good, large, bad, slow and dropped "
        f"ones for {seconds:.0f} s, a version that comes or goes every "
        f"{_SWAP_EVERY_S:.0f} s: {tally(run.outcomes)}.",
    )
    total = len(run.outcomes)
    report.none_of("requests without their own answer", run.wrong(), total)
    extra = client.unexpected + grown[_ANSWERED] - total
    report.promise("answered more or less than once", "0", extra, extra == 0)
    swaps = run.loads() / _WORKERS
    what = "version swaps, in each worker"
    report.promise(what, f"{run.swaps}", f"{swaps:g}", swaps == run.swaps)
    grown_by = end.mib / warm.mib - 1
    report.promise(
        "memory after the warm-up",
        f"grows < {growth:.0%}",
        f"{grown_by:+.1%}: {warm.mib:.1f} to {end.mib:.1f} MiB",
        grown_by < growth,
    )
    for name in ("threads", "descriptors"):
        first, last = getattr(warm, name), getattr(end, name)
        words = f"{first} to {last}"
        report.promise(f"{name} after the warm-up", "no more", words, last <= first)
    return report


@dataclass
class _Run:
    """A running soak and its outcomes."""

    server: Server
    client: Client
    version: Path
    rate: float
    outcomes: list[Outcome] = field(default_factory=list)
    swaps: int = 0

    def wrong(self) -> list[Outcome]:
        """Return the outcomes that are not those that their requests must have."""
        return [one for one in self.outcomes if not mix.is_as_promised(one)]

    async def fill_threads(self) -> None:
        """Make each worker start all its threads, which it starts as it needs them.

        The kernel chooses the worker of a new connection, so there may be several
        rounds: until one adds no thread and all workers have equally many, or until a
        request is not answered right.
        """
        clients = 6 * _WORKERS * _THREADS
        threads: list[int] = []
        for _ in range(_MOST_ROUNDS):
            before = threads
            requests = (self.client.ask(mix.SLOW_AND_LARGE) for _ in range(clients))
            health = (self.client.fetch("/healthz") for _ in range(clients))
            seen, _ = await asyncio.gather(
                asyncio.gather(*requests), asyncio.gather(*health)
            )
            self.outcomes += seen
            self.client.close()
            threads = [Held.by(pid).threads for pid in self.server.workers()]
            are_full = threads == before and len(set(threads)) == 1
            if are_full or not all(map(mix.is_as_promised, seen)):
                break

    async def phase(self, seconds: float, seed: int) -> Held:
        """Serve the mix, and return what the workers hold without clients."""
        async with basket.beside(self._swap()), basket.beside(self._show()):
            requests = mix.requests(self.rate, seconds, seed)
            await self.client.open_loop(requests, _GIVE_UP_S, self.outcomes)
        await self._until_loaded()
        if self.version.exists():
            self._add_or_remove()
            await self._until_loaded()
        self.client.close()
        await asyncio.sleep(_UNLOADED_S)
        return await Held.at_rest(*self.server.workers())

    async def _swap(self) -> None:
        while True:
            await asyncio.sleep(_SWAP_EVERY_S)
            await self._until_loaded()
            self._add_or_remove()

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
            return self.loads() >= self.swaps * _WORKERS

        await basket.until(is_loaded, _GIVE_UP_S)

    def loads(self) -> int:
        """Return how many versions have been loaded since the start, over workers."""
        return self.server.loaded() - _WORKERS

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(_SHOW_EVERY_S)
            print(
                f"{len(self.outcomes):,} requests ended, {len(self.wrong()):,} wrong; "
                f"{Held.by(*self.server.workers())}",
                file=sys.stderr,
                flush=True,
            )
