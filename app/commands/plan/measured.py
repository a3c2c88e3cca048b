"""The seconds of a model's batches on this machine, as `models check` measures them."""

import statistics
from functools import partial

import click
import numpy as np

from app.batching.model_log import ModelLog
from app.commands.example import example_rows
from app.commands.measurement import rested_ms, time_batches
from app.commands.plan.batch_seconds import BatchSeconds
from app.engines import open_engine
from app.engines.base import Engine, main_signature
from app.engines.loading import as_load_error
from app.engines.random_rows import accepted_random_rows
from app.errors import ModelLoadError
from app.repository.find_version import find_version
from app.repository.loading.opener import prepare
from app.settings import Settings
from app.settings.model_config import ModelConfig


def measured(
    settings: Settings, name: str, version: int | None
) -> tuple[Settings, BatchSeconds]:
    """Load a model; return its own settings, and the seconds of its batches.

    Raises:
        ModelLoadError: there is no such model or version, it can't be loaded, fails,
            or runs none of its batches.
        SettingsError: the model's basket.toml is wrong.
    """
    number, path, config, _ = find_version(settings, name, version)
    click.echo(f"loading {name} version {number} ...")
    engine = open_engine(path, config.settings)
    try:
        with as_load_error(f"model {name!r} version {number}"):
            seconds = _timed(engine, config, ModelLog(name, number))
    finally:
        engine.close()
    if seconds is None:
        raise ModelLoadError(f"model {name!r} runs no batch: there is nothing to plan")
    return config.settings, seconds


def _timed(engine: Engine, config: ModelConfig, log: ModelLog) -> BatchSeconds | None:
    """Show and return the times of batches; None if none fits into memory."""
    settings = config.settings
    # One whose rows depend on each other is not batched from then on.
    code, _ = prepare(engine, config, log)
    signature_name, _ = main_signature(engine.signatures)
    if code is not None and code.service.has_example:
        click.echo("  timing batches of the row of EXAMPLE ...")
        make = example_rows(code)
    else:
        rows = accepted_random_rows(engine, signature_name)
        click.echo(f"  timing random rows{rows.describe()} ...")
        make = partial(rows.make, random=np.random.default_rng(0))
    times_ms = time_batches(engine, signature_name, make, settings)
    if not times_ms:
        return None
    smallest = min(times_ms)
    batch = make(smallest)
    click.echo("  timing batches after rests, 45 s or more ...")
    rested = rested_ms(partial(engine.run, batch, signature_name))
    for rest_s, found_ms in rested.items():
        middle_ms, most_ms = statistics.median(found_ms), np.percentile(found_ms, 95)
        when = f"after a rest of {rest_s:g} s, p95 {most_ms:.2f}"
        click.echo(f"  {smallest:6} {middle_ms:11.2f}  {when}")
    return BatchSeconds(
        {size: each_ms / 1000 for size, each_ms in times_ms.items()},
        settings,
        {
            rest_s: [(each_ms - times_ms[smallest]) / 1000 for each_ms in found_ms]
            for rest_s, found_ms in rested.items()
        },
    )
