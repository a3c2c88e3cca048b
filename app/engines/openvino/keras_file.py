"""Runs .keras and .h5 files on OpenVINO, on the CPU.

TensorFlow exports the model in a process of its own, so that this one never holds it.
Weights and sums are float32 where the model's are: by itself OpenVINO takes bfloat16 on
processors that have it, and its answers are then off by more than is allowed here.
"""

import re
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors
from app.engines.openvino.no_telemetry import openvino
from app.engines.reading import in_one_line
from app.engines.reference import reference
from app.errors import ModelFailed, ModelLoadError
from app.settings import Settings

# One batch at a time, on all cores.
_CONFIG = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
_INT32 = np.iinfo(np.int32)


class KerasOpenVinoEngine:
    """A compiled model, for batches of any size."""

    platform = "openvino_keras"

    def __init__(self, compiled: Any, signature: Signature, weight_bytes: int) -> None:
        """Take what openvino.Core.compile_model gives."""
        self.signatures: Mapping[str, Signature] = {DEFAULT_SIGNATURE: signature}
        self.weight_bytes = weight_bytes
        self._compiled = compiled
        self._inputs = [_place(compiled.inputs, spec.name) for spec in signature.inputs]
        self._outputs = [
            _place(compiled.outputs, spec.name) for spec in signature.outputs
        ]
        # One serves one batch at a time; request threads may come side by side.
        self._idle: deque[Any] = deque()

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch.

        Raises:
            ModelFailed: a whole number of more than 32 bits.
            RuntimeError: whatever OpenVINO raises.
        """
        signature = self.signatures[signature_name]
        for spec in signature.inputs:
            _check_range(spec.name, batch[spec.name])
        inputs = {
            place: np.ascontiguousarray(batch[spec.name])
            for place, spec in zip(self._inputs, signature.inputs, strict=True)
        }
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        # Outputs are copied: the request's own are written over by its next batch.
        arrays = request.infer(inputs, share_inputs=True).to_tuple()
        self._idle.append(request)
        return {
            spec.name: arrays[place]
            for place, spec in zip(self._outputs, signature.outputs, strict=True)
        }

    def close(self) -> None:
        """Drop the model."""
        self._idle.clear()
        self._compiled = None


def open_engine(file: Path, settings: Settings) -> KerasOpenVinoEngine:
    """Convert a .keras or .h5 file, and hold its answers to TensorFlow's.

    Raises:
        ModelLoadError: TensorFlow can't export it, OpenVINO can't run it, or the
            answers differ.
    """
    del settings  # none is for a CPU
    with reference(file, saved_model=True) as found:
        try:
            compiled = (
                openvino().Core().compile_model(str(found.saved_model), "CPU", _CONFIG)
            )
        except Exception as error:  # OpenVINO raises whatever its readers raise
            raise ModelLoadError(
                f"{file.name} can't run in OpenVINO: {_reason(error)}"
            ) from error
        engine = KerasOpenVinoEngine(compiled, found.signature, found.weight_bytes)
        found.check(engine)
        return engine


def _check_range(name: str, array: Array) -> None:
    """Refuse what OpenVINO's CPU plugin would cut off: it computes in 32 bits.

    Raises:
        ModelFailed: a whole number of more.
    """
    if array.dtype.kind not in "iu" or array.dtype.itemsize <= _INT32.dtype.itemsize:
        return
    if array.size and not _INT32.min <= array.min() <= array.max() <= _INT32.max:
        raise ModelFailed(
            f"{name} holds a number of more than 32 bits, which OpenVINO would cut off"
        )


def _reason(error: Exception) -> str:
    """Why OpenVINO does not take a model; most of its text says where it noticed."""
    found = re.search(r"No conversion rule found for operations: (.+)", str(error))
    return f"it has no {found[1]}" if found else in_one_line(error)


def _place(ports: Any, name: str) -> int:
    """Where the port of this name stands.

    Raises:
        ModelLoadError: OpenVINO has left it out, as it does with what nothing uses.
    """
    for place, port in enumerate(ports):
        if name in port.get_names():
            return place
    raise ModelLoadError(f"OpenVINO knows no {name!r} in this model")
