"""TensorFlow's answers to random rows, which the answers of other engines are held to.

TensorFlow runs in a process of its own, on the CPU, and is gone before the model is
served. What crosses are .npy arrays and JSON.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from app.engines.base import Engine, Signature, Tensors, TensorSpec
from app.engines.difference import scale, share
from app.engines.reading import in_one_line
from app.errors import ModelLoadError

_log = logging.getLogger(__name__)
_ROOT = Path(__file__).parents[2]
# As a share of an output's largest value.
_TOLERANCE = 1e-3
_FILE = "reference.json"
ERROR_FILE, EXPORT_FOLDER = "error.txt", "saved_model"


@dataclass(frozen=True)
class Reference:
    """A model's signature, rows for it, and TensorFlow's answers; it holds no text.

    `saved_model` is a folder with the model as TensorFlow exported it, where that was
    asked for.
    """

    signature: Signature
    rows: Tensors
    answers: Tensors
    weight_bytes: int
    saved_model: Path | None = None

    def check(self, engine: Engine) -> None:
        """Hold an engine's answers to TensorFlow's.

        A difference of floats is taken as a share of the output's largest value, as a
        model's scores may all be small; of all else it is the share of unequal values.

        Raises:
            ModelLoadError: one beyond 1e-3, with the output; or it fails on the rows.
        """
        try:
            given = engine.run(self.rows)
        except Exception as error:  # a model may raise anything
            raise ModelLoadError(
                f"fails on random rows that TensorFlow computes: {in_one_line(error)}"
            ) from error
        shares = {
            name: share(wanted, given[name], scale([wanted]))
            for name, wanted in self.answers.items()
        }
        output = max(shares, key=lambda name: shares[name])
        found = (
            f"{output} differs from TensorFlow's by up to {shares[output]:.1e} of its "
            "largest value"
        )
        if not shares[output] <= _TOLERANCE:
            raise ModelLoadError(f"{found}, more than {_TOLERANCE:g}")
        _log.info("%s: %s", engine.platform, found)


@contextmanager
def reference(file: Path, *, saved_model: bool = False) -> Iterator[Reference]:
    """Load a .keras or .h5 file in TensorFlow, in another process, and let it answer.

    Raises:
        ModelLoadError: TensorFlow can't read, run or export the model.
    """
    with TemporaryDirectory(prefix="basket-") as folder:
        command = [
            *(sys.executable, "-m", "app.engines.tensorflow.reference_process"),
            *(str(file.resolve()), folder, *(["--export"] if saved_model else [])),
        ]
        # GPUs are for those who serve, and round floats in their own way.
        environ = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        ran = subprocess.run(  # noqa: S603
            command, cwd=_ROOT, env=environ, capture_output=True, check=False
        )
        if (Path(folder) / ERROR_FILE).exists():
            raise ModelLoadError((Path(folder) / ERROR_FILE).read_text())
        if ran.returncode:
            _log.error("TensorFlow's process: %s", ran.stderr.decode(errors="replace"))
            raise ModelLoadError(
                f"the process that loads it in TensorFlow ended with {ran.returncode}"
            )
        yield read(Path(folder), saved_model=saved_model)


def write(folder: Path, found: Reference) -> None:
    """Write a reference for the process that waits for it."""
    signature = found.signature
    head = {
        "inputs": [spec.to_list() for spec in signature.inputs],
        "outputs": [spec.to_list() for spec in signature.outputs],
        "weight_bytes": found.weight_bytes,
    }
    for kind, arrays, specs in (
        ("input", found.rows, signature.inputs),
        ("output", found.answers, signature.outputs),
    ):
        for place, spec in enumerate(specs):
            np.save(folder / f"{kind}-{place}.npy", arrays[spec.name], False)
    (folder / _FILE).write_text(json.dumps(head))


def read(folder: Path, *, saved_model: bool) -> Reference:
    """Read what another process wrote."""
    head = json.loads((folder / _FILE).read_text())
    inputs = tuple(TensorSpec.from_list(each) for each in head["inputs"])
    outputs = tuple(TensorSpec.from_list(each) for each in head["outputs"])
    return Reference(
        Signature(inputs, outputs),
        _arrays(folder, "input", inputs),
        _arrays(folder, "output", outputs),
        head["weight_bytes"],
        folder / EXPORT_FOLDER if saved_model else None,
    )


def _arrays(folder: Path, kind: str, specs: tuple[TensorSpec, ...]) -> Tensors:
    return {
        spec.name: np.load(folder / f"{kind}-{place}.npy")
        for place, spec in enumerate(specs)
    }
