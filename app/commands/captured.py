"""`models captured`: show and export the requests that [capture] has written."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from app.capture import blocks
from app.capture.as_json import records
from app.capture.captured import Group, joined
from app.capture.reader import Reading, read_captured
from app.capture.ring import folder_of
from app.codec import json_text
from app.codec.fit import type_name
from app.commands.atomic_write import atomic_write
from app.commands.measurement import bytes_text
from app.engines.base import Tensors
from app.errors import ModelLoadError, SettingsError
from app.settings import Settings

_COLUMNS = "{:>7} {:>8} {:>8} {:>11} {:>8}  {:19}  {:19}"
_HEADINGS = ("version", "requests", "rows", "median (ms)", "p99 (ms)")


def captured_command(settings: Settings) -> click.Command:
    """Return the command `captured`."""

    @click.command("captured")
    @click.argument("name")
    @click.option(
        "--export",
        "target",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write all of them to one file: .npz, or .json.",
    )
    def captured(name: str, target: Path | None) -> None:
        """Show the captured requests of a model: versions, times, sizes.

        What can't be read is named, and skipped.
        """
        reading = _read(settings, name)
        for note in reading.notes:
            click.echo(f"note: {note}", err=True)
        if target is not None:
            _export(reading, target)
            click.echo(f"written: {target}, {len(reading)} requests")
            return
        size = bytes_text(reading.file_bytes)
        click.echo(f"{name}: {len(reading)} requests in {reading.files} files, {size}")
        for line in _table(reading.groups):
            click.echo(line)

    return captured


def _read(settings: Settings, name: str) -> Reading:
    if settings.capture_dir is None:
        raise SettingsError("BASKET_CAPTURE_DIR is not set: nothing is captured")
    folder = folder_of(settings.capture_dir, name)
    try:
        return read_captured(folder)
    except FileNotFoundError as error:
        raise ModelLoadError(
            f"no captured requests of {name!r} in {settings.capture_dir}"
        ) from error
    except OSError as error:
        raise ModelLoadError(f"{folder}: {error.strerror}") from error


def _table(groups: Sequence[Group]) -> Iterator[str]:
    if not groups:
        return
    yield _COLUMNS.format(*_HEADINGS, "from (UTC)", "to (UTC)")
    columns = {
        name: np.concatenate([each.columns[name] for each in groups])
        for name in ("version", "rows", "latency_s", "time")
    }
    for version in np.unique(columns["version"]).tolist():
        chosen = columns["version"] == version
        ms, times = 1000 * columns["latency_s"][chosen], columns["time"][chosen]
        span = np.datetime_as_string([times.min(), times.max()], unit="s")
        yield _COLUMNS.format(
            *(version, int(chosen.sum()), int(columns["rows"][chosen].sum())),
            *(f"{np.median(ms):.2f}", f"{np.percentile(ms, 99):.2f}"),
            *(each.replace("T", " ") for each in span),
        )
    for group in joined(groups):
        inputs, outputs = _named(group.inputs), _named(group.outputs)
        yield f"{group.signature_name}: {inputs} -> {outputs}: {len(group)} requests"


def _named(tensors: Tensors) -> str:
    return ", ".join(
        f"{name} {type_name(array.dtype)} {array.shape[1:]}"
        for name, array in tensors.items()
    )


def _export(reading: Reading, target: Path) -> None:
    groups = joined(reading.groups)
    match target.suffix:
        case ".npz":
            content = blocks.encode(groups)
        case ".json":
            requests = [each for group in groups for each in records(group)]
            content = json_text.dumps_any_float(requests)
        case _:
            raise click.UsageError(f"--export: expected .npz or .json, given {target}")
    with atomic_write(target) as partial:
        partial.touch(mode=0o600)
        partial.write_bytes(content)
