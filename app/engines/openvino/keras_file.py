"""Runs .keras and .h5 files on OpenVINO, on the CPU.

TensorFlow exports the model in a process of its own, so that the serving process never
imports it. Precision is float32 where the model's is: OpenVINO's default on CPUs with
bfloat16 is bfloat16, whose outputs differ by more than the allowed tolerance.
"""

import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors
from app.engines.loading import error_summary
from app.engines.openvino import import_openvino
from app.engines.reference import tensorflow_reference
from app.errors import ModelLoadError, RefusedInput
from app.settings import Settings

# One batch at a time, on all cores.
_CONFIG = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
_INT32 = np.iinfo(np.int32)


class KerasOpenVinoEngine:
    """A compiled model, for batches of any size."""

    platform = "openvino_keras"

    def __init__(self, compiled: Any, signature: Signature, weight_bytes: int) -> None:
        """Take the result of openvino.Core.compile_model."""
        self.signatures: Mapping[str, Signature] = {DEFAULT_SIGNATURE: signature}
        self.weight_bytes = weight_bytes
        self._compiled = compiled
        self._inputs = [
            _port_index(compiled.inputs, spec.name) for spec in signature.inputs
        ]
        self._outputs = [
            _port_index(compiled.outputs, spec.name) for spec in signature.outputs
        ]
        # An infer request runs one batch at a time; threads may run concurrently.
        self._idle_requests: deque[Any] = deque()

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch.

        Raises:
            RefusedInput: an integer beyond int32.
            RuntimeError: whatever OpenVINO raises.
        """
        signature = self.signatures[signature_name]
        for spec in signature.inputs:
            _check_range(spec.name, batch[spec.name])
        inputs = {
            index: np.ascontiguousarray(batch[spec.name])
            for index, spec in zip(self._inputs, signature.inputs, strict=True)
        }
        try:
            request = self._idle_requests.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        # infer() copies its outputs, which the next batch of this request overwrites.
        arrays = request.infer(inputs, share_inputs=True).to_tuple()
        self._idle_requests.append(request)
        return {
            spec.name: arrays[index]
            for index, spec in zip(self._outputs, signature.outputs, strict=True)
        }

    def close(self) -> None:
        """Drop the model."""
        self._idle_requests.clear()
        self._compiled = None


def open_engine(file: Path, settings: Settings) -> KerasOpenVinoEngine:
    """Convert a .keras or .h5 file, and check its outputs against TensorFlow's.

    Raises:
        ModelLoadError: TensorFlow can't export it, OpenVINO can't run it, or outputs
            differ.
    """
    with TemporaryDirectory(prefix="basket-") as folder:
        exported = Path(folder) / "saved_model"
        found = tensorflow_reference(
            file, user_code=settings.user_code, export_to=exported
        )
        try:
            core = import_openvino().Core()
            compiled = core.compile_model(str(exported), "CPU", _CONFIG)
        except Exception as error:  # OpenVINO raises whatever its readers raise
            raise ModelLoadError(
                f"{file.name} can't run in OpenVINO: {_reason(error)}"
            ) from error
        engine = KerasOpenVinoEngine(compiled, found.signature, found.weight_bytes)
        found.check(engine)
        return engine


def _check_range(name: str, array: Array) -> None:
    """Raise RefusedInput for integers beyond int32: the CPU plugin truncates them."""
    if array.dtype.kind not in "iu" or np.can_cast(array.dtype, np.int32):
        return
    if array.size and not _INT32.min <= array.min() <= array.max() <= _INT32.max:
        raise RefusedInput(
            f"{name} holds a number outside {_INT32.min} to {_INT32.max}, which "
            "OpenVINO would cut off"
        )


def _reason(error: Exception) -> str:
    """Return why OpenVINO refuses a model, without the source locations in its text."""
    found = re.search(r"No conversion rule found for operations: (.+)", str(error))
    return f"it has no {found[1]}" if found else error_summary(error)


def _port_index(ports: Any, name: str) -> int:
    """Return the index of the port with this name.

    OpenVINO removes unused ports: raise ModelLoadError if it is not there.
    """
    for index, port in enumerate(ports):
        if name in port.get_names():
            return index
    raise ModelLoadError(f"OpenVINO knows no {name!r} in this model")
