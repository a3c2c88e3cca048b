"""Makes models, the requests for them, and the answers that the models give.

In a process of its own, as TensorFlow's memory and threads would be in the way:
`python -m bench.peers.models LOAD FOLDER`.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from bench.peers.loads import LOADS, Load, Prepared, found_in
from bench.vision.set_ups import photographs
from testing.keras_models import tell_apart
from testing.server import ROOT, simulated_models

_SEED = 8
_REQUESTS = 16
_LAYERS = {"tiny": (64, 64, 10), "growth": (64, 64, 10), "big": (4096,) * 9}
_SIDE, _CLASSES = 96, 1000
_IMAGE = f"""[image]
size = [{_SIDE}, {_SIDE}]
mode = "RGB"
scale = "none"
interpolation = "nearest"
classes = "classes.json"
"""


def prepare(load: Load, folder: Path) -> Prepared:
    """Make what a load wants, in a folder that is not there yet.

    Raises:
        subprocess.CalledProcessError: the model can't be made.
    """
    folder.mkdir()
    if load.simulation is not None:
        simulated_models(folder / "models", **{load.name: load.simulation})
        rows = random_rows(64)
        write_rows(folder, rows)
        np.save(folder / "expected.npy", rows[:, : load.simulation["outputs"]])
    else:
        command = [sys.executable, "-m", "bench.peers.models", load.name, str(folder)]
        subprocess.run(  # noqa: S603
            command, cwd=ROOT, check=True, capture_output=True, text=True
        )
    return found_in(load, folder)


def random_rows(width: int) -> npt.NDArray[np.float32]:
    """Random rows of 64ths, which are the same in any notation."""
    random = np.random.default_rng(_SEED)
    sixtyfourths = random.integers(64, size=(_REQUESTS, width))
    return np.asarray(sixtyfourths / 64, np.float32)


def write_rows(folder: Path, rows: npt.NDArray[np.float32]) -> None:
    """Write the request of each row into the folder of a load."""
    (folder / "bodies").mkdir()
    for place, row in enumerate(rows):
        file = folder / "bodies" / f"{place:02}.json"
        file.write_text(json.dumps({"instances": [row.tolist()]}))


def main(arguments: Sequence[str]) -> None:
    """Make the model of one load."""
    name, folder = arguments[0], Path(arguments[1])
    version = folder / "models" / name / "1"
    version.mkdir(parents=True)
    if name == "mnet":
        _make_mnet(folder, version)
    else:
        _make_dense(folder, version, _LAYERS[name])


def _make_dense(folder: Path, version: Path, sizes: Sequence[int]) -> None:
    import keras  # noqa: PLC0415

    keras.utils.set_random_seed(_SEED)
    model = keras.Sequential([keras.Input([sizes[0]])])
    for size in sizes[1:]:
        model.add(keras.layers.Dense(size, "relu", kernel_initializer="he_normal"))
    rows = random_rows(sizes[0])
    write_rows(folder, rows)
    np.save(folder / "expected.npy", model(rows).numpy())
    model.save(version / "model.keras")


def _make_mnet(folder: Path, version: Path) -> None:
    import keras  # noqa: PLC0415

    keras.utils.set_random_seed(_SEED)
    net = keras.applications.MobileNetV2((_SIDE, _SIDE, 3), weights=None)
    taken = keras.Input([_SIDE, _SIDE, 3], dtype="uint8")
    scaled = keras.layers.Rescaling(1 / 127.5, -1)(taken)
    model = keras.Model(taken, net(scaled))
    pixels = np.stack([_pixels(file) for file in photographs(folder / "bodies")])
    tell_apart(keras, net, pixels / np.float32(127.5) - 1)
    np.save(folder / "expected.npy", model(pixels).numpy())
    model.save(version / "model.keras")
    (version.parent / "basket.toml").write_text(_IMAGE)
    names = [f"class {number}" for number in range(_CLASSES)]
    (version.parent / "classes.json").write_text(json.dumps(names))


def _pixels(file: Path) -> npt.NDArray[np.uint8]:
    small = Image.open(file).resize((_SIDE, _SIDE), Image.Resampling.NEAREST)
    return np.asarray(small)


if __name__ == "__main__":
    assert sys.argv[1] in LOADS
    main(sys.argv[1:])
