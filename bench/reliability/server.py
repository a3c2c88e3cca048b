"""A real Gunicorn with a simulated model: start it, read its metrics and processes."""

import asyncio
import contextlib
import os
import resource
import tempfile
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from testing.memory import resident_mib
from testing.open_loop import Client, client_of
from testing.server import Server, serving, simulated_models

GOOD = "wsgi:app"
# For more clients than the server can answer in time.
CROWDED = ("--threads=20", "--worker-connections=4096")
_WIDTH = 4
_READ_EVERY_S = 0.25
_T = TypeVar("_T")
Metrics = Mapping[str, float]


def device(base_ms: float, per_row_ms: float, **more: Any) -> dict[str, Any]:
    """Return a simulated.json that echoes rows of four values."""
    shape = {"input_shape": [_WIDTH], "outputs": _WIDTH}
    return {"base_ms": base_ms, "per_row_ms": per_row_ms, **shape, **more}


@contextlib.contextmanager
def simulated(
    simulation: dict[str, Any], *args: str, app: str = GOOD, **settings: str
) -> Iterator[Server]:
    """Serve a simulated model under the name m."""
    with tempfile.TemporaryDirectory() as folder:
        settings["model_dir"] = simulated_models(Path(folder), m=simulation)
        with serving(*args, app=app, own_session=True, **settings) as server:
            yield server


def raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors to its maximum, for child processes too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


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


async def read_metrics(client: Client) -> dict[str, float]:
    """Return the value of each series of /metrics, by name and labels."""
    text = await client.fetch("/metrics")
    pairs = (line.rpartition(" ") for line in text.splitlines() if line[:1] != "#")
    return {series: float(value) for series, _, value in pairs}


def total(metrics: Metrics, name: str) -> float:
    """Return the sum of all series of a metric."""
    return sum(
        value for series, value in metrics.items() if series.partition("{")[0] == name
    )


def gained(before: Metrics, after: Metrics, name: str) -> int:
    """Return by how much a counter has grown, over all its series."""
    return int(total(after, name) - total(before, name))


@contextlib.asynccontextmanager
async def sampled(client: Client, name: str) -> AsyncIterator[list[int]]:
    """Yield a list to which the sum of a metric is added four times per second."""
    values: list[int] = []

    async def read() -> None:
        while True:
            values.append(int(total(await read_metrics(client), name)))
            await asyncio.sleep(_READ_EVERY_S)

    async with beside(read()):
        yield values


@dataclass(frozen=True)
class Held:
    """Resident memory in MiB, threads and file descriptors of processes."""

    mib: float
    threads: int
    descriptors: int


def held_by(pids: Iterable[int]) -> Held:
    """Return what processes hold together.

    Raises:
        FileNotFoundError: one has ended.
    """
    pids = list(pids)
    return Held(
        sum(map(resident_mib, pids)),
        sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids),
        sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
    )


def client_ports(pid: int, port: int) -> frozenset[int]:
    """Return the clients' ports of the connections to `port` that a process holds."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            inodes.add(str(file.readlink()))
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, *_, inode = line.split()[:10]
        if f"socket:[{inode}]" in inodes and int(local.rpartition(":")[2], 16) == port:
            found.add(int(remote.rpartition(":")[2], 16))
    return frozenset(found)
