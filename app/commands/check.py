"""`models check`: a version's signatures, latency, and whether it may be batched."""

from contextlib import closing
from functools import partial
from pathlib import Path

import click
import numpy as np

from app.batching.model_log import ModelLog
from app.commands.example import check_example
from app.commands.measurement import (
    bytes_text,
    file_bytes,
    time_batches,
    weight_bytes,
)
from app.commands.options import FiniteRange, version_option
from app.commands.version import find_version
from app.engines import open_engine
from app.engines.base import Engine, Signature
from app.engines.batch_invariance import Comparison, compare, must_not_share
from app.engines.loading import error_summary
from app.engines.random_rows import accepted_random_rows
from app.errors import ModelLoadError
from app.settings import Settings

# Rows per batch of the comparison if max_batch_size is 1.
_COMPARED_BATCH = 8


def check_command(settings: Settings) -> click.Command:
    """Return the command `check`."""

    @click.command("check")
    @click.argument("name")
    @version_option
    @click.option(
        "--tolerance",
        type=FiniteRange(min=0),
        default=1e-4,
        show_default=True,
        help="A share of an output's largest value.",
    )
    def check(name: str, version: int | None, tolerance: float) -> None:
        """Load a version, show it, time it, and compare rows alone and in batches.

        Fail if a row's output depends on the other rows of its batch, or on padding,
        by more than the tolerance: such a model must not be batched.
        """
        number, path, config = find_version(settings, name, version)
        click.echo(f"loading {name} version {number} ...")
        with closing(open_engine(path, config.settings)) as engine:
            click.echo(_size_line(engine, path))
            if check_example(engine, config.settings, ModelLog(name, number)):
                return
            findings = _check_signatures(engine, config.settings, tolerance)
        if findings:
            _conclude(findings, name, config.settings.max_batch_size)

    return check


def _check_signatures(
    engine: Engine, settings: Settings, tolerance: float
) -> list[str | None]:
    """Return a finding of `_check_signature` for each signature that is batched."""
    findings = {
        each: _check_signature(engine, each, settings, tolerance)
        for each in engine.signatures
    }
    return [
        finding
        for each, finding in findings.items()
        if not engine.signatures[each].limit_reason
    ]


def _check_signature(
    engine: Engine, name: str, settings: Settings, tolerance: float
) -> str | None:
    """Return a problem with batching, "" for none, None if rows are not compared."""
    signature = engine.signatures[name]
    _show(name, signature)
    try:
        rows = accepted_random_rows(engine, name)
    except ModelLoadError as error:
        click.echo(f"  not compared: {error}")
        return None
    try:
        click.echo(f"  timing random rows{rows.describe()} ...")
        random = np.random.default_rng(0)
        make = partial(rows.make, random=random)
        largest = max(time_batches(engine, name, make, settings), default=1)
        if signature.limit_reason:
            return None
        batch_rows = largest if largest > 1 else _COMPARED_BATCH
        click.echo(f"  comparing rows alone and in batches of {batch_rows} ...")
        comparison = compare(engine, name, rows, batch_rows)
    except Exception as error:  # a model may raise anything
        kind, reason = type(error).__name__, error_summary(error)
        return f"{name} fails on several rows: {kind}: {reason}"
    return _judge(name, comparison, tolerance)


def _size_line(engine: Engine, version: Path) -> str:
    size = weight_bytes(engine)
    weights = f"{bytes_text(size)} of weights, " if size else ""
    return f"{engine.platform}: {weights}{bytes_text(file_bytes(version))} of files"


def _show(name: str, signature: Signature) -> None:
    click.echo(f"signature {name}")
    if signature.limit_reason:
        click.echo(f"  {signature.batching_note()}")
    for kind, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for spec in specs:
            dtype = "string" if spec.dtype.kind == "O" else spec.dtype.name
            click.echo(f"  {kind:6} {spec.name}: {dtype} {spec.shape_text()}")


def _judge(name: str, comparison: Comparison, tolerance: float) -> str:
    """Show a comparison; return a problem with batching, "" for none."""
    click.echo("  difference from its answer alone; 1: the output's largest value")
    for each in (*comparison.differences, comparison.other_row):
        click.echo(f"    {each.condition:17} {each.share:8.1e}  {each.output}")
    problem = comparison.problem(tolerance)
    if problem:
        return f"{name}: {problem}"
    if comparison.other_row.share <= tolerance:
        click.echo("  note: all random rows get one answer, so this tells little")
    return ""


def _conclude(findings: list[str | None], name: str, max_batch_size: int) -> None:
    problems = "; ".join(finding for finding in findings if finding)
    if problems and max_batch_size > 1:
        raise click.ClickException(must_not_share(problems, f"{name}/basket.toml"))
    if problems:
        click.echo(f"{problems}. It does no harm as max_batch_size is 1")
    elif all(finding is None for finding in findings):
        raise click.ClickException("no signature could be compared")
    else:
        known = " where it could be compared" if None in findings else ""
        click.echo(f"each row's answer is its own{known}: the model may be batched")
