"""`models fetch`: an image model of keras.applications, ready to be served."""

import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from app.commands.atomic_write import atomic_write
from app.commands.new_models.architectures import ARCHITECTURES
from app.settings import Settings

_CLASSES_FILE = "classes.json"


def fetch_command(settings: Settings) -> click.Command:
    """Return the command `fetch`."""

    @click.command(
        "fetch", epilog=f"NAME is one of: {', '.join(sorted(ARCHITECTURES))}"
    )
    @click.argument("name", type=click.Choice(sorted(ARCHITECTURES)), metavar="NAME")
    @click.option(
        "--weights",
        default="imagenet",
        show_default=True,
        help="none: random, for load tests. A file: of this architecture's weights.",
    )
    @click.option(
        "--size",
        type=click.IntRange(min=1, max=4096),
        help="Side of the model's pictures; not given: the architecture's own.",
    )
    def fetch(name: str, weights: str, size: int | None) -> None:
        """Make models/NAME from keras.applications: weights, [image] and classes.

        What is downloaded, Keras keeps for the next time.
        """
        target = settings.model_dir / name
        if target.exists():
            raise click.ClickException(f"{target} exists already")
        source = _source(weights)
        click.echo("starting TensorFlow ...")
        # Imported here: only this command needs a framework.
        applications = import_module("app.commands.new_models.applications")
        model = _build(applications, name, size, source)
        classes = _classes(applications, required=weights == "imagenet")
        _write(target, model, few_batch_sizes(settings.max_batch_size), classes)
        click.echo(f"written: {target}; serve it with BASKET_DEFAULT_MODEL={name}")

    return fetch


def _source(weights: str) -> Path | str | None:
    if weights in ("imagenet", "none"):
        return "imagenet" if weights == "imagenet" else None
    if not Path(weights).is_file():
        raise click.ClickException(
            f"--weights {weights}: expected imagenet, none, or a file of weights"
        )
    return Path(weights)


def _build(
    applications: Any, name: str, size: int | None, source: Path | str | None
) -> Any:
    try:
        return applications.build(*ARCHITECTURES[name], size, source)
    except applications.DownloadError as error:
        raise _download_failed(name, error) from error


def _classes(applications: Any, *, required: bool) -> dict[str, list[str]] | None:
    try:
        found: dict[str, list[str]] = applications.imagenet_classes()
    except applications.DownloadError as error:
        if required:
            raise _download_failed("ImageNet's classes", error) from error
        click.echo(
            f"without {_CLASSES_FILE}: ImageNet's names can't be downloaded ({error}). "
            "Answers are predictions by index"
        )
        return None
    return found


def _download_failed(what: str, error: Exception) -> click.ClickException:
    return click.ClickException(
        f"{what} can't be downloaded: {error}\n"
        "Without a network: --weights none makes random weights, for load tests; "
        "--weights FILE takes a file of weights."
    )


def few_batch_sizes(most: int) -> list[int]:
    """Return sizes up to `most`: powers of two to an eighth of it, then each eighth.

    TensorFlow caches memory for each batch size that a convolution has run with, so a
    server that runs all sizes keeps growing.
    """
    step = math.ceil(most / 8)
    doubles = (1 << n for n in range(step.bit_length()))
    return sorted(
        {size for size in doubles if size < step} | {*range(step, most, step), most}
    )


def _write(
    target: Path, model: Any, sizes: list[int], classes: dict[str, list[str]] | None
) -> None:
    height, width = model.input_shape[1:3]
    lines = [
        f"allowed_batch_sizes = {sizes}",
        "",
        "[image]",
        f"size = [{height}, {width}]",
        'mode = "RGB"',
        'scale = "none"',  # the model scales pixels itself
    ]
    with atomic_write(target) as partial:
        (partial / "1").mkdir(parents=True)
        model.save(partial / "1" / "model.keras")
        if classes is not None:
            lines.append(f'classes = "{_CLASSES_FILE}"')
            (partial / _CLASSES_FILE).write_text(json.dumps(classes) + "\n")
        (partial / "basket.toml").write_text("\n".join(lines) + "\n")
