"""A real Gunicorn with a simulated model: start it, read its metrics and processes."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from testing.memory import resident_mib
from testing.open_loop import Client, client_of
from testing.server import Server

# For more clients than the server can answer in time.
CROWDED = ("--threads=20", "--worker-connections=4096")
ROWS_RUN, BATCHES_RUN = "basket_batch_rows_sum", "basket_batch_rows_count"
_READ_EVERY_S = 0.25
# How often descriptors are counted, and the seconds in between.
_READINGS, _BETWEEN_S = 10, 0.05
_T = TypeVar("_T")


def with_client(
    server: Server, work: Callable[..., Awaitable[_T]], *args: Any, **named: Any
) -> _T:
    """Return work(client, ...), run in an event loop."""

    async def run() -> _T:
        async with client_of(server.port) as client:
            return await work(client, *args, **named)

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run a coroutine as a task until the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def counted(client: Client, *names: str) -> AsyncIterator[dict[str, int]]:
    """Yield a dictionary that has the growth of these metrics after the block."""
    before = {name: await client.total(name) for name in names}
    grown: dict[str, int] = {}
    yield grown
    for name in names:
        grown[name] = await client.total(name) - before[name]


@contextlib.asynccontextmanager
async def sampled(client: Client, name: str) -> AsyncIterator[list[int]]:
    """Yield a list to which the sum of a metric is added four times per second."""
    values: list[int] = []

    async def read() -> None:
        while True:
            values.append(await client.total(name))
            await asyncio.sleep(_READ_EVERY_S)

    async with beside(read()):
        yield values


async def until(
    condition: Callable[[], Awaitable[bool]], give_up_s: float = 30, poll_s: float = 0.1
) -> None:
    """Wait until `condition` is true, but not forever."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(give_up_s):
            while not await condition():
                await asyncio.sleep(poll_s)


@dataclass(frozen=True)
class Held:
    """Resident memory in MiB, threads and file descriptors of a server's workers."""

    mib: float
    threads: int
    descriptors: int

    @classmethod
    def by(cls, *pids: int) -> "Held":
        """Return what processes hold together; raise FileNotFoundError if one ended."""
        return cls(
            sum(map(resident_mib, pids)),
            sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids),
            sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        )

    @classmethod
    async def at_rest(cls, *pids: int) -> "Held":
        """Return the reading with the fewest descriptors of several.

        A process opens files for moments, too: to look for versions, or for its memory.
        What leaks is in each reading.
        """
        readings = []
        for _ in range(_READINGS):
            readings.append(cls.by(*pids))
            await asyncio.sleep(_BETWEEN_S)
        return min(readings, key=lambda held: held.descriptors)
