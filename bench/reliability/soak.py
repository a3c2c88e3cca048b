"""A soak: all kinds of clients for a long time, while versions come and go.

What the server holds is compared at two quiet moments: after a warm-up, and at the
end. At both all clients have gone and the same version serves.
"""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bench.reliability import metrics, mix
from bench.reliability.processes import Held, held_by
from bench.reliability.report import Report, tally
from bench.reliability.set_up import GOOD, device, with_client
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, rows_request
from testing.server import Server, serving, simulated_models

_WORKERS = 2
_THREADS = 4
_RATE = 100.0
_SWAP_EVERY_S = 4.0
_SHOW_EVERY_S = 10.0
_LONGEST_WARM_UP_S = 60.0
# Seconds in which a version that is there no more is gone from every worker.
_SETTLED_S = 3.0
_LOOK_S = 0.1
_PATIENCE_S = 15.0
_MOST_ROUNDS = 10
_GROWTH = 0.02
_DEVICE = device(base_ms=5, per_row_ms=0.05)


def soak(
    seconds: float = 600,
    app: str = GOOD,
    growth: float = _GROWTH,
    rate: float = _RATE,
) -> Report:
    """Serve a mix for so long, of which up to a minute is warm-up.

    `growth` is the share by which memory may grow after that; `rate` is requests/s.
    """
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        arguments = (f"--workers={_WORKERS}", f"--threads={_THREADS}")
        settings = {
            "model_dir": simulated_models(models, m=_DEVICE),
            "request_timeout_ms": "5000",
        }
        with serving(*arguments, app=app, own_session=True, **settings) as server:
            soaked = with_client(
                server,
                partial(
                    _soak, server=server, models=models, seconds=seconds, rate=rate
                ),
            )
    return _report(soaked, seconds, growth)


@dataclass
class _Soak:
    """A soak that is going on, and what was seen of it."""

    server: Server
    client: Client
    version: Path
    rate: float
    outcomes: list[Outcome] = field(default_factory=list)
    swaps: int = 0
    loaded: int = 0
    counted: int = 0
    held: list[Held] = field(default_factory=list)
    began_at: float = field(default_factory=time.monotonic)

    async def fill_threads(self) -> None:
        """Have each worker start all its threads, which it does as it needs them.

        Which of them takes a client in is up to the kernel, so there may be several
        rounds of new clients: until one adds no thread, and all workers have as many;
        or until one is not answered as it should be.
        """
        slow = replace(mix.large(rows_request(0, 0)), pause_s=0.3)
        clients = 6 * _WORKERS * _THREADS
        threads: list[int] = []
        for _ in range(_MOST_ROUNDS):
            before = threads
            asked = (self.client.ask(slow) for _ in range(clients))
            health = (self.client.fetch("/healthz") for _ in range(clients))
            seen, _ = await asyncio.gather(
                asyncio.gather(*asked), asyncio.gather(*health)
            )
            self.outcomes += seen
            self.client.close()
            threads = [held_by([pid]).threads for pid in self.server.workers()]
            are_full = threads == before and len(set(threads)) == 1
            if are_full or not all(map(mix.is_as_promised, seen)):
                break

    async def phase(self, seconds: float, seed: int) -> None:
        """Serve the mix for so long, then note what is held when all have gone."""
        async with _beside(self._swap()), _beside(self._show()):
            requests = mix.requests(self.rate, seconds, seed)
            await self.client.open_loop(requests, _PATIENCE_S, self.outcomes)
        await self._loaded()
        if self.version.exists():
            self._come_or_go()
            await self._loaded()
        self.client.close()
        await asyncio.sleep(_SETTLED_S)
        self.held.append(held_by(self.server.workers()))

    async def _swap(self) -> None:
        while True:
            await asyncio.sleep(_SWAP_EVERY_S)
            await self._loaded()
            self._come_or_go()

    def _come_or_go(self) -> None:
        """Version 2 comes or goes; the loader finds out by itself."""
        self.swaps += 1
        if self.version.exists():
            shutil.rmtree(self.version)
            return
        aside = self.version.with_name(".2")
        aside.mkdir()
        (aside / "simulated.json").write_text(json.dumps(_DEVICE))
        aside.rename(self.version)

    async def _loaded(self) -> None:
        """Until each worker has followed all swaps, or is given up."""
        give_up_at = self.client.now_s() + _PATIENCE_S
        while self.loads() < self.swaps * _WORKERS:
            if self.client.now_s() > give_up_at:
                break
            await asyncio.sleep(_LOOK_S)

    def loads(self) -> int:
        """How many versions have become ready since the start, over all workers."""
        return self.server.loaded() - _WORKERS

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(_SHOW_EVERY_S)
            wrong = sum(not mix.is_as_promised(one) for one in self.outcomes)
            held = held_by(self.server.workers())
            now_s = time.monotonic() - self.began_at
            print(
                f"{now_s:.0f} s: {len(self.outcomes):,} requests ended, "
                f"{wrong:,} wrong; {held.mib:.1f} MiB, {held.threads} threads, "
                f"{held.descriptors} descriptors",
                file=sys.stderr,
                flush=True,
            )


async def _soak(
    client: Client, server: Server, models: Path, seconds: float, rate: float
) -> _Soak:
    soaking = _Soak(server, client, models / "m" / "2", rate)
    before = await metrics.read(client)
    warm_up_s = min(seconds / 3, _LONGEST_WARM_UP_S)
    await soaking.fill_threads()
    await soaking.phase(warm_up_s, seed=1)
    await soaking.phase(seconds - warm_up_s, seed=2)
    after = await metrics.read(client)
    soaking.counted = metrics.gained(before, after, "basket_requests_total")
    soaking.loaded = soaking.loads()
    return soaking


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _report(seen: _Soak, seconds: float, growth: float) -> Report:
    report = Report("Soak")
    report.notes += [
        f"{_WORKERS} workers with {_THREADS} threads, simulated device, "
        f"{seen.rate:.0f} requests/s (Poisson) of good, large, bad, slow and dropped "
        f"ones for {seconds:.0f} s, a version that comes or goes every "
        f"{_SWAP_EVERY_S:.0f} s: {tally(seen.outcomes)}."
    ]
    wrong = [one for one in seen.outcomes if not mix.is_as_promised(one)]
    report.promise(
        "requests without their own answer",
        "0",
        f"{len(wrong):,} of {len(seen.outcomes):,}",
        held=not wrong,
    )
    extra = seen.client.unasked + seen.counted - len(seen.outcomes)
    report.promise("answered more or less than once", "0", extra, held=extra == 0)
    report.promise(
        "version swaps, in each worker",
        f"{seen.swaps}",
        f"{seen.loaded / _WORKERS:g}",
        held=seen.loaded == seen.swaps * _WORKERS,
    )
    warm, end = seen.held
    grown = end.mib / warm.mib - 1
    report.promise(
        "memory after the warm-up",
        f"grows < {growth:.0%}",
        f"{grown:+.1%}: {warm.mib:.1f} to {end.mib:.1f} MiB",
        held=grown < growth,
    )
    for what in ("threads", "descriptors"):
        first, last = getattr(warm, what), getattr(end, what)
        report.promise(
            f"{what} after the warm-up",
            "no more",
            f"{first} to {last}",
            held=last <= first,
        )
    return report
