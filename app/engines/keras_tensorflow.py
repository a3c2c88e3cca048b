"""Runs .keras and .h5 files on TensorFlow.

Each model becomes one tf.function with a free batch dimension: traced once for
all batch sizes, with none of the pipeline that keras.Model.predict builds on
every call.
"""

import logging
import os
from pathlib import Path

# Read by Keras and TensorFlow when they are imported.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from app import gpus
from app.engines.base import DEFAULT_SIGNATURE, Signature, Tensors, TensorSpec
from app.errors import ModelLoadError, OutOfDeviceMemory
from app.settings import Settings

# keras, for modules that must not import it before the environment above is set.
__all__ = ["KerasTensorFlowEngine", "keras", "open_engine"]

_log = logging.getLogger(__name__)


class KerasTensorFlowEngine:
    """A Keras model behind a traced function.

    Row shapes and dtypes are the model's own; bfloat16 outputs are widened to
    float32, which NumPy and JSON can carry.
    """

    platform = "tensorflow_keras"

    def __init__(self, model: keras.Model) -> None:
        """Trace the model; nothing is computed yet.

        Raises:
            ModelLoadError: the model has no fixed inputs, or takes strings.
        """
        model = _functional(model)
        self._signature = _signature(model)
        self.signatures = {DEFAULT_SIGNATURE: self._signature}
        specs = [
            tf.TensorSpec([None, *spec.shape], tf.as_dtype(spec.dtype), name=spec.name)
            for spec in self._signature.inputs
        ]

        def call(*inputs: tf.Tensor) -> list[tf.Tensor]:
            packed = keras.tree.pack_sequence_as(model.input, list(inputs))
            outputs = keras.tree.flatten(model(packed, training=False))
            return [
                tf.cast(output, tf.float32) if output.dtype == tf.bfloat16 else output
                for output in outputs
            ]

        self._function = tf.function(call, input_signature=specs)
        self._function.get_concrete_function()

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch.

        Raises:
            OutOfDeviceMemory: TensorFlow's ResourceExhaustedError.
        """
        del signature_name  # it has one only
        inputs = [tf.constant(batch[spec.name]) for spec in self._signature.inputs]
        try:
            outputs = self._function(*inputs)
        except tf.errors.ResourceExhaustedError as error:
            rows = inputs[0].shape[0]
            raise OutOfDeviceMemory(
                f"a batch of {rows} rows does not fit into the device's memory"
            ) from error
        return {
            spec.name: output.numpy()
            for spec, output in zip(self._signature.outputs, outputs, strict=True)
        }

    def traces(self) -> int:
        """How often the model was traced; once is right."""
        return int(self._function.experimental_get_tracing_count())

    def close(self) -> None:
        """Drop the graph; TensorFlow gives GPU memory back when its process ends."""
        self._function = None


def open_engine(file: Path, settings: Settings) -> KerasTensorFlowEngine:
    """Load a .keras or .h5 file.

    Raises:
        ModelLoadError: Keras can't read the file, or it has no fixed inputs.
    """
    limit_gpu_memory(settings.gpu_memory_fraction)
    try:
        model = keras.models.load_model(file, compile=False)
    except Exception as error:  # Keras raises whatever its many readers raise
        reason = (str(error) or type(error).__name__).replace(str(file), file.name)
        raise ModelLoadError(f"{file.name}: {reason.splitlines()[0]}") from error
    return KerasTensorFlowEngine(model)


def limit_gpu_memory(fraction: float | None) -> None:
    """Cap TensorFlow at this share of each visible GPU, or let it grow as needed.

    TensorFlow takes the limit only before it first touches a GPU; later calls
    leave things as they are.
    """
    devices = tf.config.list_physical_devices("GPU")
    for device, gpu in zip(devices, gpus.visible() if devices else (), strict=False):
        try:
            if fraction is None:
                tf.config.experimental.set_memory_growth(device, True)
            else:
                share_mib = int(gpu.memory_mib * fraction)
                limit = tf.config.LogicalDeviceConfiguration(memory_limit=share_mib)
                tf.config.set_logical_device_configuration(device, [limit])
        except RuntimeError:
            _log.debug("%s is in use, its memory limit stays", device.name)


def _functional(model: keras.Model) -> keras.Model:
    """The model with inputs and outputs that have names."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise ModelLoadError(
            "the model has no fixed inputs: build it from keras.Input, as a "
            "functional or sequential model"
        )
    if isinstance(model, keras.Sequential):
        return keras.Model(inputs, model.outputs, name=model.name)
    return model


def _signature(model: keras.Model) -> Signature:
    inputs = keras.tree.flatten(model.inputs)
    return Signature(
        inputs=tuple(_spec(tensor.name, tensor) for tensor in inputs),
        outputs=tuple(
            _spec(name, tensor)
            for name, tensor in zip(
                _output_names(model), keras.tree.flatten(model.output), strict=True
            )
        ),
    )


def _output_names(model: keras.Model) -> list[str]:
    if isinstance(model.output, dict):
        # Keras flattens a dict in the order of its sorted keys.
        return sorted(model.output)
    names = model.output_names
    if len(set(names)) == len(names):
        return list(names)
    # A layer that is used twice names two outputs alike.
    return [f"{name}_{place}" for place, name in enumerate(names)]


def _spec(name: str, tensor: keras.KerasTensor) -> TensorSpec:
    dtype = "float32" if tensor.dtype == "bfloat16" else tensor.dtype
    if dtype == "string":
        raise ModelLoadError(f"{name}: strings are not served from Keras files")
    return TensorSpec(name, np.dtype(dtype), tuple(tensor.shape[1:]))
