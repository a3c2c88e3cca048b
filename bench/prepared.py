"""A model folder with requests, and the model's own answers to them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

JSON, JPEG = "application/json", "image/jpeg"
# Share of a row's largest value that a model's rounding may change.
_TOLERANCE = 1e-2
_EXPECTED = "expected.npy"


@dataclass(frozen=True)
class Prepared:
    """A model folder with one model, and requests with the model's own answers.

    Request i has the body in `bodies[i]` and the answer `expected[i]`, one row; where
    `expected` is None, any answer is right.
    """

    models: Path
    bodies: tuple[Path, ...]
    expected: npt.NDArray[np.float32] | None
    content_type: str = JSON

    @property
    def file(self) -> Path:
        """The .keras file or simulated.json."""
        (file,) = self.models.glob("*/1/*")
        return file

    def is_right(self, place: int, body: bytes) -> bool:
        """Return whether `body` has the model's answer to request `place`."""
        if self.expected is None:
            return True
        try:
            return _matches(orjson.loads(body), self.expected[place])
        except (ValueError, TypeError, LookupError):
            return False


def write_requests(folder: Path, bodies: Iterable[bytes], expected: Any = None) -> None:
    """Write requests into `folder`, beside models/, with the model's own answers."""
    (folder / "bodies").mkdir(exist_ok=True)
    for place, body in enumerate(bodies):
        (folder / "bodies" / str(place)).write_bytes(body)
    if expected is not None:
        np.save(folder / _EXPECTED, expected)


def prepared_in(folder: Path, content_type: str = JSON) -> Prepared:
    """Return the models/ in `folder`, and what `write_requests` has written there."""
    bodies = sorted((folder / "bodies").iterdir(), key=lambda file: int(file.name))
    file = folder / _EXPECTED
    expected = np.load(file) if file.exists() else None
    return Prepared(folder / "models", tuple(bodies), expected, content_type)


def json_bodies(rows: npt.NDArray[np.float32]) -> list[bytes]:
    """Return the body of a request for each row."""
    return [json.dumps({"instances": [row.tolist()]}).encode() for row in rows]


def _matches(answer: Any, expected: npt.NDArray[np.float32]) -> bool:
    if isinstance(answer, dict) and "class_id" in answer:
        # Of two classes with almost the same score, either is right.
        score = float(expected[int(answer["class_id"])])
        best = float(expected.max())
        return max(abs(float(answer["score"]) - score), best - score) < _TOLERANCE
    slack = _TOLERANCE * float(np.abs(expected).max())
    (row,) = answer["predictions"]
    given = np.asarray(row, np.float32)
    if given.shape != expected.shape:
        return False
    return bool(np.allclose(given, expected, rtol=0, atol=slack))
