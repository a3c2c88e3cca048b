"""Measures models: the time of batches, and sizes in bytes."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

import click

from app.engines.base import DEFAULT_SIGNATURE, Engine, Tensors
from app.engines.batch_sizes import batch_sizes
from app.errors import OutOfDeviceMemory
from app.settings import Settings

# Runs stop after the maximum, or after the minimum and 2 s.
_MAX_RUNS, _MIN_RUNS, _ENOUGH_S = 15, 3, 2.0
# Rests, in which caches get cold, threads fall asleep and clocks slow down.
_RESTS_S = (0.0, 0.02, 0.05, 0.1, 0.4, 1.6)
# No more rounds through all of them begin after so long.
ENOUGH_ROUNDS_S = 40.0
# Runs after rests of one length; the first, with another rest before, does not count.
_RUNS_IN_A_ROW = 3


def median_ms(
    run: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the median duration of `run` in ms; the first run is a warm-up."""
    run()
    times_s: list[float] = []
    while len(times_s) < _MIN_RUNS or (
        len(times_s) < _MAX_RUNS and sum(times_s) < _ENOUGH_S
    ):
        began_at = clock()
        run()
        times_s.append(clock() - began_at)
    return statistics.median(times_s) * 1000


def batch_ms(engine: Engine, rows: int) -> float:
    """Return the median time of one batch of so many rows of ones, in ms."""
    specs = engine.signatures[DEFAULT_SIGNATURE].inputs
    batch = {spec.name: spec.blank(rows) + 1 for spec in specs}
    return median_ms(partial(engine.run, batch))


def rested_ms(
    run: Callable[[], object],
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[float, list[float]]:
    """Return durations of `run` in ms, by the rest in s before it.

    A thread is woken for each run, as for a server's batches. The run before it had a
    rest of the same length, as a processor slows down over several rests. The lengths
    take turns in a random order.
    """
    times_ms: dict[float, list[float]] = {rest_s: [] for rest_s in _RESTS_S}
    random = Random(0)  # noqa: S311 # no secret
    first_at = clock()
    with ThreadPoolExecutor(1) as batching_thread:
        while clock() - first_at < ENOUGH_ROUNDS_S:
            for rest_s in random.sample(_RESTS_S, len(_RESTS_S)):
                for place in range(_RUNS_IN_A_ROW):
                    sleep(rest_s)
                    began_at = clock()
                    batching_thread.submit(run).result()
                    if place > 0:
                        times_ms[rest_s].append(1000 * (clock() - began_at))
    return times_ms


def weight_bytes(engine: Engine) -> int:
    """Return the bytes of the model's weights; 0 if unknown or none."""
    return int(getattr(engine, "weight_bytes", 0))


def file_bytes(version: Path) -> int:
    """Return the bytes of all files of a version; it may be a file."""
    files = (version, *version.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())


def bytes_text(size: float) -> str:
    """Return a size for display: 150.9 KiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:  # noqa: PLR2004
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def time_batches(
    engine: Engine, name: str, make: Callable[[int], Tensors], settings: Settings
) -> dict[int, float]:
    """Show and return the ms of a batch by its size, of those that fit into memory."""
    click.echo("    rows  ms a batch    ms a row")
    times_ms: dict[int, float] = {}
    sizes = batch_sizes(settings.max_batch_size, settings.allowed_batch_sizes)
    for size in engine.signatures[name].batch_sizes(sizes):
        batch = make(size)
        try:
            duration_ms = median_ms(partial(engine.run, batch, name))
        except OutOfDeviceMemory as error:
            click.echo(f"  {error}")
            break
        click.echo(f"  {size:6} {duration_ms:11.2f} {duration_ms / size:11.3f}")
        times_ms[size] = duration_ms
    return times_ms
