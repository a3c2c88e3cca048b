"""A server's /metrics, read while it is under load."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from testing.open_loop import Client

# Seconds from one look to the next.
_EVERY_S = 0.25

Metrics = Mapping[str, float]


async def read(client: Client) -> dict[str, float]:
    """Each series' value, by its name and labels as they are written."""
    text = await client.fetch("/metrics")
    pairs = (line.rpartition(" ") for line in text.splitlines() if line[:1] != "#")
    return {series: float(value) for series, _, value in pairs}


def total(metrics: Metrics, name: str) -> float:
    """The sum of all series of a name."""
    return sum(
        value for series, value in metrics.items() if series.partition("{")[0] == name
    )


def gained(before: Metrics, after: Metrics, name: str) -> int:
    """By how much a counter has grown, over all its series."""
    return int(total(after, name) - total(before, name))


@contextlib.asynccontextmanager
async def sampled(client: Client) -> AsyncIterator[list[dict[str, float]]]:
    """A list that grows by a reading four times a second."""
    readings: list[dict[str, float]] = []

    async def look() -> None:
        while True:
            readings.append(await read(client))
            await asyncio.sleep(_EVERY_S)

    task = asyncio.create_task(look())
    try:
        yield readings
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
