"""Runs traced TensorFlow functions; shared by the engines for TensorFlow's formats.

Each function is traced once: for all batch sizes, unless its model fixes the shapes.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from app import gpus
from app.engines.base import DEFAULT_SIGNATURE, Signature, Tensors, TensorSpec
from app.engines.loading import error_summary, tensor_spec
from app.engines.refusal import advice_for, does_not_fit, refusal
from app.engines.tensorflow.freezing import freeze, is_read_only
from app.engines.tensorflow.inline import InlineFunction
from app.engines.tensorflow.tensorflow_private import tensor_view
from app.engines.whole_tensors import model_inputs, row_outputs
from app.errors import ModelLoadError

# tf, for code outside this package, which sets TensorFlow's environment.
__all__ = ["Function", "TensorFlowEngine", "limit_gpu_memory", "not_dense", "tf"]

_log = logging.getLogger(__name__)
# Kind of a tensor -> what makes it of a dense tensor x, and a dense tensor of it.
_DENSE = {
    "ragged": ("tf.RaggedTensor.from_tensor(x, padding=0)", "x.to_tensor()"),
    "sparse": ("tf.sparse.from_dense(x)", "tf.sparse.to_dense(x)"),
}


@dataclass(frozen=True)
class Function:
    """A signature and its computation: positional tensors in, tensors in order out.

    `explain` makes an error of the trace a text.
    """

    signature: Signature
    call: Callable[..., Sequence[tf.Tensor]]
    explain: Callable[[Exception], str] = error_summary

    def traced(self) -> tf.types.experimental.PolymorphicFunction:
        """Return the graph: tensors in the signature's order in, tensors by name out.

        Raises:
            ModelLoadError: `call` can't be traced.
        """

        def call(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            outputs = zip(self.signature.outputs, self.call(*inputs), strict=True)
            return {spec.name: _widen_bfloat16(tensor) for spec, tensor in outputs}

        shape_of = self.signature.tensor_shape
        specs = [
            tf.TensorSpec(shape_of(spec), tf.as_dtype(spec.dtype), spec.name)
            for spec in self.signature.inputs
        ]
        function = tf.function(call, input_signature=specs)
        try:
            function.get_concrete_function()
        except Exception as error:  # a layer may raise anything
            raise ModelLoadError(
                f"can't be traced for any number of rows: {self.explain(error)}"
            ) from error
        return function


class TensorFlowEngine:
    """A model's functions by the names of their signatures.

    bfloat16 is float32 outside the model: NumPy and JSON have no such type.
    """

    platform: str

    def __init__(self, functions: Mapping[str, Function], weight_bytes: int) -> None:
        """Trace the functions and freeze them; compute nothing yet.

        If any function may change a variable, none is frozen and inputs are copied: the
        others may read that variable, and it may keep the memory of an input.

        Raises:
            ModelLoadError: a function can't be traced, or an output is not a dense
                tensor.
        """
        self.weight_bytes = weight_bytes
        traced = {name: function.traced() for name, function in functions.items()}
        self.signatures: Mapping[str, Signature] = {
            name: _traced_signature(each.signature, traced[name])
            for name, each in functions.items()
        }
        writing = [name for name, each in traced.items() if not is_read_only(each)]
        if writing:
            _log.info(
                "signature %s may change variables or tables of the model: answers may "
                "depend on earlier requests",
                ", ".join(writing),
            )
        has_state = bool(writing)
        self._to_tensor = tf.constant if has_state else tensor_view
        self._computes = {
            name: each if has_state else freeze(each) for name, each in traced.items()
        }

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch with one of the functions.

        Raises:
            OutOfDeviceMemory: TensorFlow's ResourceExhaustedError.
            RefusedInput: its InvalidArgumentError, if that is about values.
        """
        signature = self.signatures[signature_name]
        arrays = model_inputs(batch, signature)
        inputs = [self._to_tensor(arrays[spec.name]) for spec in signature.inputs]
        try:
            outputs = self._computes[signature_name](*inputs)
            # Not numpy(), which copies.
            found = {name: np.asarray(output) for name, output in outputs.items()}
        except tf.errors.ResourceExhaustedError as error:
            rows = len(batch[signature.inputs[0].name])
            raise does_not_fit(rows) from error
        except tf.errors.InvalidArgumentError as error:
            # TensorFlow also says so of a graph that it can't run at all.
            if advice_for(error.message):
                raise
            raise refusal("the model refuses this input", error.message) from error
        return row_outputs(found, signature)

    def close(self) -> None:
        """Drop the graphs; TensorFlow frees GPU memory only when its process ends."""
        computes, self._computes = self._computes, {}
        for compute in computes.values():
            if isinstance(compute, InlineFunction):
                compute.close()


def _widen_bfloat16(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor


def _traced_signature(
    declared: Signature, function: tf.types.experimental.PolymorphicFunction
) -> Signature:
    """Return the signature with the outputs' dtypes and shapes as the graph has them.

    Keras declares int64 for a StringLookup's words, and uint32 for joined uint64.
    """
    found = function.get_concrete_function().structured_outputs
    outputs = (
        _traced_spec(spec, declared, found[spec.name]) for spec in declared.outputs
    )
    return replace(declared, outputs=tuple(outputs))


def _traced_spec(spec: TensorSpec, signature: Signature, traced: Any) -> TensorSpec:
    if not isinstance(traced, tf.Tensor):
        kind = "ragged" if isinstance(traced, tf.RaggedTensor) else "sparse"
        raise not_dense(f"output {spec.name}", kind)
    is_whole = signature.takes_whole_tensors
    declared = signature.tensor_shape(spec) if is_whole else (None, *spec.shape)
    try:
        # Either may know sizes that the other leaves open.
        shape = traced.shape.merge_with(declared)
    except ValueError:
        shape = traced.shape
    sizes = None if shape.rank is None else shape.as_list()[0 if is_whole else 1 :]
    return tensor_spec(spec.name, traced.dtype.name, sizes)


def not_dense(label: str, kind: str) -> ModelLoadError:
    """Return the refusal of an input or an output, by its label, that is no array.

    `kind` says what it is: ragged, sparse, or TensorFlow's name of another type.
    """
    is_output = label.startswith("output")
    dense = _DENSE.get(kind, ("", ""))[is_output]
    verb = "return" if is_output else "take"
    return ModelLoadError(
        f"{label} is a {kind} tensor, and Basket serves dense ones: let the saved "
        f"function {verb} a dense tensor{dense and f', with {dense}'}"
    )


def limit_gpu_memory(fraction: float | None) -> None:
    """Cap TensorFlow at this share of each visible GPU, or let it grow on demand.

    TensorFlow accepts a limit only before it first uses a GPU; later calls change
    nothing.
    """
    devices = tf.config.list_physical_devices("GPU")
    named = gpus.visible() if devices and fraction is not None else ()
    if fraction is not None and len(named) != len(devices):
        _log.warning("BASKET_GPU_MEMORY_FRACTION has no effect: NVML knows other GPUs")
        fraction = None
    for index, device in enumerate(devices):
        try:
            if fraction is None:
                tf.config.experimental.set_memory_growth(device, True)
            else:
                share_mib = int(named[index].memory_mib * fraction)
                limit = tf.config.LogicalDeviceConfiguration(memory_limit=share_mib)
                tf.config.set_logical_device_configuration(device, [limit])
        except RuntimeError:
            _log.debug("%s is in use, its memory limit stays", device.name)
