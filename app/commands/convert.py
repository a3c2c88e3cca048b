"""`models convert`: a file of Keras 2 as a SavedModel."""

import shlex
from contextlib import closing
from pathlib import Path

import click

from app.commands.atomic_write import atomic_write
from app.commands.version import next_version
from app.engines import open_engine
from app.engines.reference import keras2_reference
from app.settings import Settings
from app.settings.model_files import is_version


def convert_command(settings: Settings) -> click.Command:
    """Return the command `convert`."""

    @click.command("convert")
    @click.argument(
        "file", type=click.Path(exists=True, dir_okay=False, path_type=Path)
    )
    @click.option(
        "--to",
        "target",
        type=click.Path(path_type=Path),
        help="The new folder. Default: the model's next version; for a file that is no "
        "version, version 1 of a model with its name.",
    )
    def convert(file: Path, target: Path | None) -> None:
        """Write a file of Keras 2 as a SavedModel, with tf_keras."""
        if target is None:
            target = _version_for(file, settings)
        if target.exists():
            raise click.ClickException(f"{target} exists already")
        click.echo("starting tf_keras ...")
        with atomic_write(target) as new:
            reference = keras2_reference(file, new)
            rows = len(next(iter(reference.rows.values())))
            click.echo(f"{file.name}: read by {reference.framework}")
            with closing(open_engine(new, settings)) as engine:
                click.echo(
                    f"comparing on {rows} random rows: {reference.check(engine)}"
                )
        click.echo(f"written: {target}")
        click.echo(f"serve it alone: make serve MODEL={shlex.quote(str(target))}")

    return convert


def _version_for(file: Path, settings: Settings) -> Path:
    """Return the folder for a file's SavedModel in the folder of models."""
    folder = file.resolve().parent
    models = settings.model_dir.resolve()
    if is_version(folder.name) and folder.parent.parent == models:
        return next_version(settings, folder.parent.name)
    return settings.model_dir / file.stem / "1"
