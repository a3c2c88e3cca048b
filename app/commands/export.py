"""`models export`: a Keras file in the format of another server."""

import shlex
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from app.commands.atomic_write import atomic_write
from app.commands.options import version_option
from app.commands.version import keras_file
from app.repository.find_version import find_version
from app.settings import Settings

# Format -> the package that Keras needs for it, if it is not one of Basket's own.
_PACKAGES = {"savedmodel": None, "openvino": "openvino", "onnx": "tf2onnx"}


def export_command(settings: Settings) -> click.Command:
    """Return the command `export`."""

    @click.command("export")
    @click.argument("name")
    @click.option(
        "--format", "form", type=click.Choice(list(_PACKAGES)), default="savedmodel"
    )
    @version_option
    @click.option("--output", type=click.Path(path_type=Path), default=Path("exported"))
    @click.option(
        "--batching-parameters-file",
        "batching_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="For TensorFlow Serving, in the command that is printed.",
    )
    def export(
        name: str,
        form: str,
        version: int | None,
        output: Path,
        batching_file: Path | None,
    ) -> None:
        """Write a Keras model as OUTPUT/NAME/VERSION for another server.

        Inputs and outputs keep the names, shapes and dtypes that Basket serves.
        """
        found = find_version(settings, name, version)
        file = keras_file(found, "exported")
        target = output / name / str(found.number)
        _check_possible(form, target)
        click.echo("starting TensorFlow ...")
        _write(file, settings, form, target)
        click.echo(f"written: {target}")
        if form == "savedmodel":
            click.echo("serve it with TensorFlow Serving:")
            click.echo(docker_command(target.parent, batching_file))

    return export


def docker_command(model: Path, batching_file: Path | None) -> str:
    """Return a shell command that serves a folder of versions on TensorFlow Serving."""
    mounts = [(model, f"/models/{model.name}")]
    flags = []
    if batching_file is not None:
        inside = "/models/batching.pbtxt"
        mounts.append((batching_file, inside))
        flags = ["--enable_batching", f"--batching_parameters_file={inside}"]
    lines = ["docker run --rm -p 8501:8501"]
    for source, inside in mounts:
        mount = f"type=bind,source={source.resolve()},target={inside}"
        lines.append(f"--mount {shlex.quote(mount)}")
    name = shlex.quote(f"MODEL_NAME={model.name}")
    lines.append(" ".join([f"-e {name} tensorflow/serving", *flags]))
    return " \\\n  ".join(lines)


def _check_possible(form: str, target: Path) -> None:
    """Raise an error if the format's package is missing or the target exists."""
    package = _PACKAGES[form]
    if package is not None and find_spec(package) is None:
        raise click.ClickException(
            f"--format {form} needs a package that is not here: pip install {package}"
        )
    if target.exists():
        raise click.ClickException(f"{target} exists already")


def _write(file: Path, settings: Settings, form: str, target: Path) -> None:
    with atomic_write(target) as partial:
        # Imported here: only this command needs a framework.
        module = import_module("app.engines.tensorflow.export")
        module.export(file, settings, form, partial)
