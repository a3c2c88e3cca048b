"""`models quantize`: a Keras file with smaller weights, as a new version."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import click
import numpy as np

from app.codec import npy
from app.commands.atomic_write import atomic_write
from app.commands.measurement import (
    bytes_text,
    file_bytes,
    median_ms,
    weight_bytes,
)
from app.commands.options import FiniteRange, version_option
from app.commands.version import keras_file, next_version
from app.engines import open_engine
from app.engines.base import DEFAULT_SIGNATURE, Array, Engine, Tensors
from app.engines.loading import as_load_error
from app.engines.random_rows import accepted_random_rows
from app.errors import BadInput, ModelLoadError
from app.promotion.measures.agreement import Agreement, compare
from app.repository.find_version import Found, find_version
from app.settings import Settings

_RANDOM_ROWS = 256
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def quantize_command(settings: Settings) -> click.Command:
    """Return the command `quantize`."""
    # Keras quantizes on TensorFlow here, and has one backend per process.
    settings = replace(settings, engine="tensorflow")

    @click.command("quantize")
    @click.argument("name")
    @click.option("--int8", "kind", flag_value="int8", help="Weights of 8 bits.")
    @version_option
    @click.option("--data", type=_FILE, help="Rows to compare on, .npy; else random.")
    @click.option(
        "--agreement",
        type=FiniteRange(0, 1),
        default=0.99,
        show_default=True,
        help="The share of rows that must have the original's output.",
    )
    @click.option("--force", is_flag=True, help="Write it even if they don't.")
    def quantize(
        name: str,
        kind: str | None,
        version: int | None,
        data: Path | None,
        agreement: float,
        force: bool,
    ) -> None:
        """Quantize a Keras model as its next version, and show both side by side."""
        if kind is None:
            raise click.UsageError("say to what; there is: --int8")
        original = find_version(settings, name, version)
        file = keras_file(original, "quantized")
        target = next_version(settings, name)
        with atomic_write(target) as new:
            _write(file, original, kind, new)
            agreements = _compare(original, new, target.name, data)
            _judge(agreements, agreement, force=force)
        click.echo(f"written: {target}")

    return quantize


def _write(file: Path, original: Found, kind: str, new: Path) -> None:
    click.echo("starting TensorFlow ...")
    # Imported here: only this command needs a framework.
    quantization = import_module("app.commands.quantization")
    click.echo(f"quantizing version {original.number} to {kind} ...")
    new.mkdir()
    quantized = quantization.quantize(
        file, original.config.settings, kind, new / "model.keras"
    )
    click.echo(f"  quantized: {', '.join(quantized.layers)}")
    click.echo(f"  as before: {', '.join(quantized.others) or 'nothing'}")


def _compare(
    version: Found, new: Path, number: str, data: Path | None
) -> list[Agreement]:
    """Show both versions side by side; return how far their outputs agree."""
    settings = version.config.settings
    with (
        closing(open_engine(version.path, settings)) as original,
        closing(open_engine(new, settings)) as other,
    ):
        rows, described = _rows(original, data)
        click.echo(f"timing, and comparing on {described} ...")
        most = settings.max_batch_size
        pairs = ((version.path, original), (new, other))
        _show("", [f"version {each}" for each in (version.number, number)])
        _show("files", [bytes_text(file_bytes(each)) for each, _ in pairs])
        _show("weights", [bytes_text(weight_bytes(each)) for _, each in pairs])
        with as_load_error(described):
            for size in sorted({1, most}):
                batch = _repeated(rows, size)
                took_ms = [median_ms(partial(each.run, batch)) for _, each in pairs]
                title = f"batch of {size}"
                _show(title, [f"{each:.2f} ms" for each in took_ms])
            return compare(original, other, _batches(rows, most))


def _show(title: str, figures: Sequence[str]) -> None:
    click.echo(f"  {title:12}" + "".join(f"{each:>14}" for each in figures))


def _batches(rows: Tensors, most: int) -> list[Tensors]:
    """Return the rows in batches of at most so many."""
    count = len(next(iter(rows.values())))
    return [
        {name: array[start : start + most] for name, array in rows.items()}
        for start in range(0, count, most)
    ]


def _repeated(rows: Tensors, size: int) -> Tensors:
    """Return a batch of so many of the rows, repeated from the first if needed."""
    return {
        name: np.resize(array, (size, *array.shape[1:])) for name, array in rows.items()
    }


def _rows(engine: Engine, data: Path | None) -> tuple[Tensors, str]:
    """Return the rows to compare on, and a description of them."""
    if data is None:
        made = accepted_random_rows(engine, DEFAULT_SIGNATURE)
        rows = made.make(_RANDOM_ROWS, np.random.default_rng(0))
        return rows, f"{_RANDOM_ROWS} random rows{made.describe()}"
    try:
        rows = npy.decode(data.read_bytes(), engine.signatures[DEFAULT_SIGNATURE])
        _require_finite(*rows.values())
    except BadInput as error:
        raise ModelLoadError(f"--data {data}: {error}") from error
    return rows, f"the rows of {data}"


def _require_finite(rows: Array) -> None:
    """Raise BadInput for rows with NaN: ReLU turns it into 0, and all outputs agree."""
    if rows.dtype.kind != "f":
        return
    finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    if not finite.all():
        raise BadInput(f"rows[{finite.argmin()}] holds NaN or infinity")


def _judge(found: Sequence[Agreement], required: float, *, force: bool) -> None:
    for each in found:
        click.echo(f"  {each.describe()}")
        if each.top_classes == 1:
            click.echo(
                "  note: all rows have one top class, so this tells little; --data "
                "takes better ones"
            )
    worst = min(found, key=Agreement.share)
    if worst.share() >= required:
        return
    problem = (
        f"{worst.output}: {worst.measure} in {worst.share():.2%} of the rows, "
        f"required: {required:.2%}"
    )
    if not force:
        raise click.ClickException(
            f"{problem}. Nothing is written; --force writes it anyway"
        )
    click.echo(f"{problem}; forced")
