"""Runs traced TensorFlow functions; what the engines for TensorFlow's formats share.

Each function has a free batch dimension and is traced once for all batch sizes.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Read by TensorFlow when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from app import gpus
from app.engines.base import (
    DEFAULT_SIGNATURE,
    Array,
    Signature,
    Tensors,
    TensorSpec,
)
from app.engines.reading import in_one_line, row_spec
from app.engines.tensorflow.freezing import frozen, only_reads
from app.engines.tensorflow.inline import Inline
from app.errors import ModelLoadError, OutOfDeviceMemory

# tf, for modules that must not import it before the environment above is set.
__all__ = [
    "Function",
    "TensorFlowEngine",
    "limit_gpu_memory",
    "tf",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Function:
    """A signature, and what computes it: tensors to tensors, in the same order."""

    signature: Signature
    call: Callable[..., Sequence[tf.Tensor]]

    def traced(self) -> tf.types.experimental.PolymorphicFunction:
        """The graph: tensors in the signature's order to named ones.

        Raises:
            ModelLoadError: what it calls can't be traced.
        """

        def call(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            outputs = zip(self.signature.outputs, self.call(*inputs), strict=True)
            return {spec.name: _widened(tensor) for spec, tensor in outputs}

        function = tf.function(call, input_signature=self.input_specs())
        try:
            function.get_concrete_function()
        except Exception as error:  # a layer may raise anything
            raise ModelLoadError(
                f"can't be traced for any number of rows: {in_one_line(error)}"
            ) from error
        return function

    def input_specs(self) -> list[tf.TensorSpec]:
        """The signature's inputs as TensorFlow writes them, with a free batch."""
        return [
            tf.TensorSpec([None, *spec.shape], tf.as_dtype(spec.dtype), spec.name)
            for spec in self.signature.inputs
        ]


class TensorFlowEngine:
    """A model's functions by the names of their signatures.

    bfloat16 is float32 outside the model: NumPy and JSON can't carry it.
    """

    platform: str

    def __init__(self, functions: Mapping[str, Function], weight_bytes: int) -> None:
        """Trace the functions, and freeze them; nothing is computed yet.

        Where one of them may change a variable, the others may read it, and it may
        keep the memory of what it is given: so none is frozen, and inputs are copied.

        Raises:
            ModelLoadError: one can't be traced, or gives what is no dense tensor.
        """
        self.weight_bytes = weight_bytes
        traced = {name: function.traced() for name, function in functions.items()}
        self.signatures: Mapping[str, Signature] = {
            name: _as_traced(each.signature, traced[name])
            for name, each in functions.items()
        }
        has_state = not all(map(only_reads, traced.values()))
        self._tensor = tf.constant if has_state else _tensor
        self._computes = {
            name: each if has_state else frozen(each) for name, each in traced.items()
        }

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch with one of the functions.

        Raises:
            OutOfDeviceMemory: TensorFlow's ResourceExhaustedError.
        """
        signature = self.signatures[signature_name]
        inputs = [self._tensor(batch[spec.name]) for spec in signature.inputs]
        try:
            outputs = self._computes[signature_name](*inputs)
            # Not numpy(), which copies.
            return {name: np.asarray(output) for name, output in outputs.items()}
        except tf.errors.ResourceExhaustedError as error:
            raise OutOfDeviceMemory(
                f"a batch of {inputs[0].shape[0]} rows does not fit into the device's "
                "memory"
            ) from error

    def close(self) -> None:
        """Drop the graphs; TensorFlow gives GPU memory back when its process ends."""
        computes, self._computes = self._computes, {}
        for compute in computes.values():
            if isinstance(compute, Inline):
                compute.close()


def _widened(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor


def _as_traced(
    said: Signature, function: tf.types.experimental.PolymorphicFunction
) -> Signature:
    """The signature with outputs as the graph gives them.

    Keras says int64 of a StringLookup's words, and uint32 of joined uint64.
    """
    found = function.get_concrete_function().structured_outputs
    outputs = (_spec_as_traced(spec, found[spec.name]) for spec in said.outputs)
    return Signature(said.inputs, tuple(outputs))


def _spec_as_traced(said: TensorSpec, traced: Any) -> TensorSpec:
    if not isinstance(traced, tf.Tensor):
        raise ModelLoadError(f"output {said.name} is not one dense tensor")
    try:
        # Either may know sizes that the other leaves open.
        shape = traced.shape.merge_with([None, *said.shape])
    except ValueError:
        shape = traced.shape
    return row_spec(said.name, traced.dtype.name, shape.as_list()[1:])


def _tensor(array: Array) -> tf.Tensor:
    """The array as a tensor: in its own memory, where that is aligned.

    tf.constant copies it first, so that a tensor never changes with an array.
    """
    return ops.EagerTensor(array, context.context().device_name, None)


def limit_gpu_memory(fraction: float | None) -> None:
    """Cap TensorFlow at this share of each visible GPU, or let it grow as needed.

    TensorFlow takes the limit only before it first touches a GPU; later calls
    leave things as they are.
    """
    devices = tf.config.list_physical_devices("GPU")
    named = gpus.visible() if devices and fraction is not None else ()
    if fraction is not None and len(named) != len(devices):
        _log.warning("BASKET_GPU_MEMORY_FRACTION has no effect: NVML knows other GPUs")
        fraction = None
    for place, device in enumerate(devices):
        try:
            if fraction is None:
                tf.config.experimental.set_memory_growth(device, True)
            else:
                share_mib = int(named[place].memory_mib * fraction)
                limit = tf.config.LogicalDeviceConfiguration(memory_limit=share_mib)
                tf.config.set_logical_device_configuration(device, [limit])
        except RuntimeError:
            _log.debug("%s is in use, its memory limit stays", device.name)
