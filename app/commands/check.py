"""`models check`: a version's signatures, latency, and whether it may be batched."""

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np

from app.batching.model_log import ModelLog
from app.commands.example import check_example
from app.commands.given_rows import GivenRows, read_given_rows
from app.commands.measurement import (
    bytes_text,
    file_bytes,
    time_batches,
    weight_bytes,
)
from app.commands.options import FiniteRange, version_option
from app.engines import open_engine
from app.engines.base import Engine, Signature
from app.engines.batch_invariance import (
    TOLERANCE,
    Comparison,
    compare,
    why_unbatched,
)
from app.engines.loading import error_summary
from app.engines.random_rows import RandomRows, accepted_random_rows
from app.errors import ModelLoadError
from app.repository.find_version import find_version
from app.settings import Settings

# Rows per batch of the comparison if max_batch_size is 1.
_COMPARED_BATCH = 8
# Random rows that are compared.
_RANDOM_ROWS = 8


def check_command(settings: Settings) -> click.Command:
    """Return the command `check`."""

    @click.command("check")
    @click.argument("name")
    @version_option
    @click.option(
        "--tolerance",
        type=FiniteRange(min=0),
        default=TOLERANCE,
        show_default=True,
        help="A share of an output's largest value; rounding may be more.",
    )
    @click.option(
        "--rows",
        "file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Rows to time and compare: JSON as /predict takes it, or .npz; else "
        "random.",
    )
    def check(
        name: str, version: int | None, tolerance: float, file: Path | None
    ) -> None:
        """Load a version, show it, time it, and compare rows alone and in batches.

        Fail if a row's output depends on the other rows of its batch, or on padding,
        by more than rounding: such a model is not batched.
        """
        number, path, config, _ = find_version(settings, name, version)
        click.echo(f"loading {name} version {number} ...")
        with closing(open_engine(path, config.settings)) as engine:
            click.echo(_size_line(engine, path))
            if check_example(engine, config.settings, ModelLog(name, number)):
                return
            checked = _Checked(engine, config.settings, tolerance)
            if file is None:
                findings = checked.all_signatures()
            else:
                given, groups = read_given_rows(file, engine, config.image)
                findings = [checked.signature(given, group) for group in groups]
        if findings:
            _conclude(findings, config.settings.max_batch_size)

    return check


@dataclass(frozen=True)
class _Checked:
    """A version that is checked.

    A finding is a problem with batching, "" for none, None if rows are not compared.
    """

    engine: Engine
    settings: Settings
    tolerance: float

    def all_signatures(self) -> list[str | None]:
        """Return a finding for each signature that is batched."""
        findings = {each: self._random(each) for each in self.engine.signatures}
        return [
            finding
            for each, finding in findings.items()
            if not self.engine.signatures[each].limit_reason
        ]

    def _random(self, name: str) -> str | None:
        try:
            rows = accepted_random_rows(self.engine, name)
        except ModelLoadError as error:
            _show(name, self.engine.signatures[name])
            click.echo(f"  not compared: {error}")
            return None
        return self.signature(name, rows)

    def signature(self, name: str, rows: RandomRows | GivenRows) -> str | None:
        """Show a signature and its times; return the finding for these rows."""
        signature = self.engine.signatures[name]
        _show(name, signature)
        given = len(rows) if isinstance(rows, GivenRows) else 0
        try:
            kind = "your" if given else "random"
            click.echo(f"  timing {kind} rows{rows.describe()} ...")
            make = partial(rows.make, random=np.random.default_rng(0))
            times_ms = time_batches(self.engine, name, make, self.settings)
            largest = max(times_ms, default=1)
            if signature.limit_reason:
                return None
            batch_rows = largest if largest > 1 else _COMPARED_BATCH
            # More rows than a batch has are not compared.
            compared = min(given or _RANDOM_ROWS, batch_rows)
            which = f"{compared} of your {given} rows" if given else "rows"
            click.echo(f"  comparing {which} alone and in batches of {batch_rows} ...")
            comparison = compare(
                partial(self.engine.run, signature_name=name),
                rows,
                batch_rows,
                tolerance=self.tolerance,
                most_rows=compared,
            )
        except Exception as error:  # a model may raise anything
            kind, reason = type(error).__name__, error_summary(error)
            return f"{name} fails on several rows: {kind}: {reason}"
        return _judge(name, signature, comparison, self.tolerance)


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


def _judge(
    name: str, signature: Signature, comparison: Comparison, tolerance: float
) -> str | None:
    """Show a comparison; return its finding."""
    click.echo("  difference from its answer alone; 1: the output's largest value")
    for each in (*comparison.differences, comparison.other_row):
        click.echo(f"    {each.condition:17} {each.share:8.1e}  {each.output}")
    if comparison.problem:
        return f"{name}: {why_unbatched(comparison.problem, signature)}"
    if comparison.not_comparable:
        click.echo(f"  not compared: answers differ {comparison.not_comparable}")
        return None
    if comparison.other_row.share <= tolerance:
        click.echo("  note: all random rows get one answer, so this tells little")
    return ""


def _conclude(findings: list[str | None], max_batch_size: int) -> None:
    problems = "; ".join(finding for finding in findings if finding)
    if problems and max_batch_size > 1:
        raise click.ClickException(problems)
    if problems:
        click.echo(f"{problems}. It does no harm as max_batch_size is 1")
    elif all(finding is None for finding in findings):
        raise click.ClickException("no signature could be compared")
    else:
        known = " where it could be compared" if None in findings else ""
        click.echo(f"each row's answer is its own{known}: the model may be batched")
