"""What the benchmarks of pictures share: photographs, a model for them, a server."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from testing.pictures import picture, saved
from testing.server import ROOT, serving

_PICTURES = 20
_CLASSES = 1000


class Server(NamedTuple):
    """What wrk posts to, and the process whose family's memory is looked at."""

    url: str
    pid: int


@contextlib.contextmanager
def basket(models: Path, threads: int = 128, **settings: str) -> Iterator[Server]:
    """Basket with one worker on a folder of models."""
    with serving(f"--threads={threads}", model_dir=str(models), **settings) as server:
        yield Server(f"http://127.0.0.1:{server.port}/predict", server.process.pid)


def photographs(folder: Path, width: int = 320) -> list[Path]:
    """JPEGs of waves and noise, three to four, as a camera at a till writes them."""
    folder.mkdir()
    files = [folder / f"{number}.jpg" for number in range(_PICTURES)]
    for seed, file in enumerate(files):
        image = picture("RGB", width, width * 3 // 4, seed)
        file.write_bytes(saved(image, "JPEG", quality=85))
    return files


def fetched(folder: Path, model: str, size: int) -> Path:
    """A folder of models with one of Keras's applications, its weights random."""
    folder.mkdir()
    command = [Path(sys.executable).parent / "flask", "--app", "wsgi", "models"]
    subprocess.run(  # noqa: S603
        [*command, "fetch", model, "--weights", "none", "--size", str(size)],
        cwd=ROOT,
        env={**os.environ, "BASKET_MODEL_DIR": str(folder)},
        check=True,
        capture_output=True,
    )
    _name_classes(folder / model)
    return folder


def _name_classes(model: Path) -> None:
    """Give the model names for its classes, where ImageNet's can't be downloaded."""
    file = model / "classes.json"
    if not file.exists():
        names = [f"class {number}" for number in range(_CLASSES)]
        file.write_text(json.dumps(names))
        with (model / "basket.toml").open("a") as config:
            config.write('classes = "classes.json"\n')
