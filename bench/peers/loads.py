"""What the servers are put under: a model, requests for it, and who sends them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

JSON, JPEG = "application/json", "image/jpeg"
# Softmax of 3 x standard normal values: what bfloat16 would do to it is far larger.
_TOLERANCE = 1e-2


@dataclass(frozen=True)
class Clients:
    """Who sends: so many at once, each asks again after its answer.

    `thinks`: only after a uniform think time of 1 to 3 s.
    """

    count: int
    thinks: bool = False

    def __str__(self) -> str:
        noun = "client" if self.count == 1 else "clients"
        return f"{self.count} {'thinking ' if self.thinks else ''}{noun}"


@dataclass(frozen=True)
class Load:
    """A model and its clients; `simulation`: the content of its simulated.json.

    `by_users`: each client is a user of the bench's own, and each server starts once.
    Otherwise clients are wrk's connections, and servers take turns in rounds.
    """

    name: str
    title: str
    clients: tuple[Clients, ...]
    content_type: str = JSON
    simulation: dict[str, Any] | None = None
    by_users: bool = False


_DEVICE = {"base_ms": 300, "per_row_ms": 0, "input_shape": [64], "outputs": 10}
LOADS = {
    load.name: load
    for load in (
        Load("tiny", "dense 64 -> 64 -> 10, rows in JSON", (Clients(32),)),
        Load("mnet", "MobileNetV2 at 96 x 96, JPEGs", (Clients(64),), JPEG),
        Load("big", "8 dense layers of 4096, rows in JSON", (Clients(32),)),
        Load(
            "policy",
            "simulated device, 300 ms for any batch",
            (*(Clients(n, thinks=True) for n in (1, 5, 20)), Clients(20), Clients(64)),
            simulation=_DEVICE,
            by_users=True,
        ),
        Load(
            "growth",
            "the model of tiny, by connections",
            tuple(map(Clients, (1, 32, 256, 1000))),
        ),
    )
}


@dataclass(frozen=True)
class Prepared:
    """A load whose model and requests lie in a folder.

    `models` is a folder for Basket; `file` is the model in it. Request i has the body
    in `bodies[i]`, and the model itself answers it with the row `expected[i]`.
    """

    load: Load
    models: Path
    bodies: tuple[Path, ...]
    expected: npt.NDArray[np.float32]

    @property
    def file(self) -> Path:
        """The .keras file or simulated.json."""
        (file,) = (self.models / self.load.name / "1").iterdir()
        return file

    def is_right(self, place: int, body: bytes) -> bool:
        """Whether this is what request `place` has to be answered with."""
        try:
            return _matches(orjson.loads(body), self.expected[place])
        except (ValueError, TypeError, LookupError):
            return False


def _matches(told: Any, expected: npt.NDArray[np.float32]) -> bool:
    if isinstance(told, dict) and "class_id" in told:
        # Of two classes with all but the same score, either is right.
        wanted = float(expected[int(told["class_id"])])
        best = float(expected.max())
        return max(abs(float(told["score"]) - wanted), best - wanted) < _TOLERANCE
    slack = _TOLERANCE * float(np.abs(expected).max())
    given = np.asarray(_row(told), np.float32)
    if given.shape != expected.shape:
        return False
    return bool(np.allclose(given, expected, rtol=0, atol=slack))


def _row(told: Any) -> Any:
    """The row in an answer: Basket's form, BentoML's, or Triton's."""
    if isinstance(told, dict) and "outputs" in told:
        (output,) = told["outputs"]
        return output["data"]
    (row,) = told if isinstance(told, list) else told["predictions"]
    return row


def found_in(load: Load, folder: Path) -> Prepared:
    """What `bench.peers.models` has written into a folder."""
    bodies = tuple(sorted((folder / "bodies").iterdir(), key=_number))
    expected = np.load(folder / "expected.npy")
    return Prepared(load, folder / "models", bodies, expected)


def _number(file: Path) -> int:
    return int(file.stem)
