"""TensorFlow's outputs for random rows, against which other engines are checked.

TensorFlow runs in a process of its own, on the CPU, and ends before the model is
served. The two processes exchange .npz files and JSON.
"""

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from app.engines.base import Engine, Signature, Tensors, TensorSpec
from app.engines.batch_invariance import row_alone
from app.engines.difference import largest_magnitude, relative_difference
from app.engines.loading import error_summary
from app.errors import ModelLoadError

_log = logging.getLogger(__name__)
_ROOT = Path(__file__).parents[2]
# Relative to an output's largest value.
_TOLERANCE = 1e-3
_FILE = "reference.json"
ERROR_FILE = "error.txt"


@dataclass(frozen=True)
class Reference:
    """A model's signature, rows for it, and TensorFlow's outputs; none are strings."""

    signature: Signature
    rows: Tensors
    outputs: Tensors
    weight_bytes: int

    def check(self, engine: Engine) -> None:
        """Check an engine's outputs against TensorFlow's.

        Differences of floats are relative to the output's largest value, as all scores
        of a model may be small; of other dtypes, the fraction of unequal values.

        Raises:
            ModelLoadError: an output differs by more than 1e-3, or the engine fails.
        """
        try:
            actual = run_one_by_one(engine, self.rows)
        except Exception as error:  # a model may raise anything
            raise ModelLoadError(
                f"fails on random rows that TensorFlow computes: {error_summary(error)}"
            ) from error
        differences = {
            name: relative_difference(array, actual[name], largest_magnitude([array]))
            for name, array in self.outputs.items()
        }
        output, largest = max(differences.items(), key=lambda item: item[1])
        found = (
            f"{output} differs from TensorFlow's by up to {largest:.1e} of its "
            "largest value"
        )
        if not largest <= _TOLERANCE:
            raise ModelLoadError(f"{found}, more than {_TOLERANCE:g}")
        _log.info("%s: %s", engine.platform, found)


def run_one_by_one(engine: Engine, rows: Tensors) -> Tensors:
    """Return the outputs of rows that run alone: in a batch they may depend on it."""
    count = len(next(iter(rows.values())))
    found = [engine.run(row_alone(rows, row)) for row in range(count)]
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}


def tensorflow_reference(
    file: Path, *, user_code: bool, export_to: Path | None = None
) -> Reference:
    """Load a .keras or .h5 file in a TensorFlow process; return its outputs.

    With `user_code` a service.py beside the file is imported there, too. The process
    also writes a SavedModel as `export_to`, a new folder.

    Raises:
        ModelLoadError: TensorFlow can't read, run or export the model.
    """
    with TemporaryDirectory(prefix="basket-") as folder:
        command = [
            *(sys.executable, "-m", "app.engines.tensorflow.reference_process"),
            *(str(file.resolve()), folder),
            *(["--export", str(export_to)] if export_to is not None else []),
            *(["--user-code"] if user_code else []),
        ]
        # GPUs belong to the server, and round floats differently.
        environ = os.environ | {
            "CUDA_VISIBLE_DEVICES": "",
            "KERAS_BACKEND": "tensorflow",
        }
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
        return read_reference(Path(folder))


def write_reference(folder: Path, found: Reference) -> None:
    """Write a reference into a folder, for the process that reads it."""
    signature = found.signature
    head = {"signature": signature.to_list(), "weight_bytes": found.weight_bytes}
    np.savez(folder / "rows.npz", *(found.rows[each.name] for each in signature.inputs))
    np.savez(
        folder / "outputs.npz",
        *(found.outputs[each.name] for each in signature.outputs),
    )
    (folder / _FILE).write_text(json.dumps(head))


def read_reference(folder: Path) -> Reference:
    """Return the reference that another process wrote into the folder."""
    head = json.loads((folder / _FILE).read_text())
    signature = Signature.from_list(head["signature"])
    return Reference(
        signature,
        _arrays(folder / "rows.npz", signature.inputs),
        _arrays(folder / "outputs.npz", signature.outputs),
        head["weight_bytes"],
    )


def _arrays(file: Path, specs: tuple[TensorSpec, ...]) -> Tensors:
    with np.load(file) as arrays:
        return dict(zip((spec.name for spec in specs), arrays.values(), strict=True))
