"""Outputs for random rows of TensorFlow or Keras 2, against which engines are checked.

They run in a process of its own, on the CPU, which ends before the model is served. The
two processes exchange .npz files and JSON.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
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
_ERROR_FILE = "error.txt"
INSTALL_KERAS2 = "`pip install --require-hashes -r requirements/keras2.txt`"


@dataclass(frozen=True)
class Reference:
    """A model's signature, rows for it, and the outputs of `framework` for them."""

    signature: Signature
    rows: Tensors
    outputs: Tensors
    weight_bytes: int
    framework: str = "TensorFlow"

    def check(self, engine: Engine) -> str:
        """Check an engine's outputs against the framework's; return what was found.

        Differences of floats are relative to the output's largest value, as all scores
        of a model may be small; of other dtypes, the fraction of unequal values.

        Raises:
            ModelLoadError: an output differs by more than 1e-3, or the engine fails.
        """
        try:
            actual = run_one_by_one(engine.run, self.rows)
        except Exception as error:  # a model may raise anything
            raise ModelLoadError(
                f"fails on random rows that {self.framework} computes: "
                f"{error_summary(error)}"
            ) from error
        differences = {
            name: relative_difference(array, actual[name], largest_magnitude([array]))
            for name, array in self.outputs.items()
        }
        output, largest = max(differences.items(), key=lambda item: item[1])
        found = (
            f"{output} differs from {self.framework}'s by up to {largest:.1e} of its "
            "largest value"
        )
        if not largest <= _TOLERANCE:
            raise ModelLoadError(f"{found}, more than {_TOLERANCE:g}")
        _log.info("%s: %s", engine.platform, found)
        return found


def run_one_by_one(run: Callable[[Tensors], Tensors], rows: Tensors) -> Tensors:
    """Return the outputs of rows that run alone: in a batch they may depend on it."""
    count = len(next(iter(rows.values())))
    found = [run(row_alone(rows, row)) for row in range(count)]
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
    options = ["--compute", *_options(export_to, user_code=user_code)]
    with TemporaryDirectory(prefix="basket-") as folder:
        _run_tensorflow("reference_process", file, folder, options)
        return read_reference(Path(folder))


def export_saved_model(file: Path, export_to: Path, *, user_code: bool) -> None:
    """Write a Keras file as a SavedModel, as `tensorflow_reference` does.

    Raises:
        ModelLoadError: TensorFlow can't read or export the model.
    """
    options = _options(export_to, user_code=user_code)
    with TemporaryDirectory(prefix="basket-") as folder:
        _run_tensorflow("reference_process", file, folder, options)


def keras2_reference(file: Path, export_to: Path) -> Reference:
    """Load a file of Keras 2 in a process of tf_keras; return its outputs.

    The process also writes a SavedModel as `export_to`, a new folder.

    Raises:
        ModelLoadError: tf_keras is not installed, or can't read, run or export it.
    """
    if find_spec("tf_keras") is None:
        raise ModelLoadError(f"tf_keras is not installed: {INSTALL_KERAS2}")
    with TemporaryDirectory(prefix="basket-") as folder:
        _run_tensorflow("keras2_process", file, folder, _options(export_to))
        return read_reference(Path(folder))


def _options(export_to: Path | None, *, user_code: bool = False) -> list[str]:
    options = [] if export_to is None else ["--export", str(export_to)]
    return [*options, "--user-code"] if user_code else options


def _run_tensorflow(
    process: str, file: Path, folder: str, options: Sequence[str]
) -> None:
    """Run a module of app.engines.tensorflow, which writes into a folder.

    Raises:
        ModelLoadError: the error that it leaves there.
    """
    module = f"app.engines.tensorflow.{process}"
    command = [sys.executable, "-m", module, str(file.resolve()), folder, *options]
    # GPUs belong to the server, and round floats differently. tf.keras is that of
    # TF_USE_LEGACY_KERAS also in TensorFlow's own code.
    environ = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "KERAS_BACKEND": "tensorflow",
        "TF_USE_LEGACY_KERAS": "1" if process == "keras2_process" else "0",
    }
    ran = subprocess.run(  # noqa: S603
        command, cwd=_ROOT, env=environ, capture_output=True, check=False
    )
    if (Path(folder) / _ERROR_FILE).exists():
        raise ModelLoadError((Path(folder) / _ERROR_FILE).read_text())
    if ran.returncode:
        _log.error("TensorFlow's process: %s", ran.stderr.decode(errors="replace"))
        raise ModelLoadError(
            f"the process that loads it in TensorFlow ended with {ran.returncode}"
        )


@contextmanager
def written_errors(folder: Path) -> Iterator[None]:
    """Write any error of the body into a folder, for the process that reads it."""
    try:
        yield
    except Exception as problem:  # Keras and TensorFlow raise whatever they raise
        known = isinstance(problem, ModelLoadError)
        reason = f"TensorFlow can't run it: {error_summary(problem)}"
        (folder / _ERROR_FILE).write_text(str(problem) if known else reason)


def write_reference(folder: Path, found: Reference) -> None:
    """Write a reference into a folder, for the process that reads it."""
    signature = found.signature
    head = {
        "signature": signature.to_list(),
        "weight_bytes": found.weight_bytes,
        "framework": found.framework,
    }
    _write_arrays(folder / "rows.npz", signature.inputs, found.rows)
    _write_arrays(folder / "outputs.npz", signature.outputs, found.outputs)
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
        head["framework"],
    )


def _write_arrays(file: Path, specs: tuple[TensorSpec, ...], arrays: Tensors) -> None:
    # Arrays of objects would be pickled.
    found = (arrays[spec.name] for spec in specs)
    np.savez(file, *(each.astype("S") if each.dtype == "O" else each for each in found))


def _arrays(file: Path, specs: tuple[TensorSpec, ...]) -> Tensors:
    with np.load(file) as arrays:
        return {
            spec.name: array.astype(spec.dtype, copy=False)
            for spec, array in zip(specs, arrays.values(), strict=True)
        }
