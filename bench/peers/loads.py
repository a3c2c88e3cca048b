"""The loads: models, requests, and the answers that the models give.

Models are made by `python -m bench.peers.loads LOAD FOLDER`, in a process of its own,
so that TensorFlow holds no memory and no threads during the measurement.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from bench.figures import Clients
from bench.prepared import (
    JPEG,
    JSON,
    Prepared,
    json_bodies,
    prepared_in,
    write_requests,
)
from testing.keras_models import spread_scores
from testing.pictures import picture, saved
from testing.processes import run_python
from testing.server import simulated_models

_SEED = 8
_ROWS, _PICTURES = 16, 20
_SIDE, _CLASSES = 96, 1000
_IMAGE = f"""[image]
size = [{_SIDE}, {_SIDE}]
mode = "RGB"
scale = "none"
interpolation = "nearest"
classes = "classes.json"
"""
_DEVICE = {"base_ms": 300, "per_row_ms": 0, "input_shape": [64], "outputs": 10}


@dataclass(frozen=True)
class Load:
    """A model and its clients.

    `layers`: sizes of a dense model; `simulation`: content of a simulated.json; with
    neither, the model takes pictures.
    """

    name: str
    title: str
    clients: tuple[Clients, ...]
    layers: tuple[int, ...] = ()
    simulation: dict[str, Any] | None = None

    @property
    def by_users(self) -> bool:
        """Whether clients are simulated users, and each server is started once.

        Else clients are connections of wrk, and servers are measured by turns.
        """
        return any(each.thinks for each in self.clients)


LOADS = {
    load.name: load
    for load in (
        Load(
            *("tiny", "dense 64 -> 64 -> 10, rows in JSON", (Clients(32),)),
            layers=(64, 64, 10),
        ),
        Load("mnet", f"MobileNetV2 at {_SIDE} x {_SIDE}, JPEGs", (Clients(64),)),
        Load(
            *("big", "8 dense layers of 4096, rows in JSON", (Clients(32),)),
            layers=(4096,) * 9,
        ),
        Load(
            *("policy", "simulated device, 300 ms for any batch"),
            (*(Clients(n, thinks=True) for n in (1, 5, 20)), Clients(20), Clients(64)),
            simulation=_DEVICE,
        ),
        Load(
            *("growth", "the model of tiny, by connections"),
            tuple(map(Clients, (1, 32, 256, 1000))),
            layers=(64, 64, 10),
        ),
    )
}


def prepare(load: Load, folder: Path) -> Prepared:
    """Make a load's model and requests in a new folder.

    Raises:
        subprocess.CalledProcessError: the model cannot be made.
    """
    folder.mkdir()
    if load.simulation is not None:
        simulated_models(folder / "models", **{load.name: load.simulation})
        rows = random_rows(64)
        write_requests(folder, json_bodies(rows), rows[:, : load.simulation["outputs"]])
    else:
        run_python("-m", "bench.peers.loads", load.name, str(folder))
    takes_rows = load.layers or load.simulation
    return prepared_in(folder, JSON if takes_rows else JPEG)


def random_rows(width: int) -> npt.NDArray[np.float32]:
    """Return random rows of multiples of 1/64, which JSON holds exactly."""
    random = np.random.default_rng(_SEED)
    return np.asarray(random.integers(64, size=(_ROWS, width)) / 64, np.float32)


def _make_dense(sizes: Sequence[int]) -> tuple[Any, Any, list[bytes]]:
    """Return a dense model with layers of these sizes, rows, and their requests."""
    import keras  # noqa: PLC0415

    keras.utils.set_random_seed(_SEED)
    model = keras.Sequential([keras.Input([sizes[0]])])
    for size in sizes[1:]:
        model.add(keras.layers.Dense(size, "relu", kernel_initializer="he_normal"))
    rows = random_rows(sizes[0])
    return model, rows, json_bodies(rows)


def _make_mnet(folder: Path) -> tuple[Any, Any, list[bytes]]:
    """Return the model of pictures, pixels, and their JPEGs; write its basket.toml."""
    import keras  # noqa: PLC0415

    keras.utils.set_random_seed(_SEED)
    net = keras.applications.MobileNetV2((_SIDE, _SIDE, 3), weights=None)
    taken = keras.Input([_SIDE, _SIDE, 3], dtype="uint8")
    model = keras.Model(taken, net(keras.layers.Rescaling(1 / 127.5, -1)(taken)))
    files = [
        saved(picture("RGB", 320, 240, seed), "JPEG", quality=85)
        for seed in range(_PICTURES)
    ]
    side, nearest = (_SIDE, _SIDE), Image.Resampling.NEAREST
    rows = np.stack(
        [np.asarray(Image.open(BytesIO(file)).resize(side, nearest)) for file in files]
    )
    spread_scores(keras, net, rows / np.float32(127.5) - 1)
    (folder / "basket.toml").write_text(_IMAGE)
    names = [f"class {number}" for number in range(_CLASSES)]
    (folder / "classes.json").write_text(json.dumps(names))
    return model, rows, files


def main(name: str, folder: Path) -> None:
    """Make the model of one load, with requests and answers."""
    version, layers = folder / "models" / name / "1", LOADS[name].layers
    version.mkdir(parents=True)
    made = _make_dense(layers) if layers else _make_mnet(version.parent)
    model, rows, bodies = made
    write_requests(folder, bodies, model(rows).numpy())
    model.save(version / "model.keras")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
