"""Runs .keras and .h5 files on TensorFlow.

Each model becomes one tf.function with a free batch dimension: traced once for
all batch sizes, with none of the pipeline that keras.Model.predict builds on
every call.
"""

import math
import os
from pathlib import Path

from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.engines.tensorflow_engine import (
    Function,
    TensorFlowEngine,
    limit_gpu_memory,
    load_error,
    row_spec,
    tf,
)
from app.errors import ModelLoadError
from app.settings import Settings

# Read by Keras when it is imported.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras

# keras, for modules that must not import it before the environment above is set.
__all__ = [
    "KerasTensorFlowEngine",
    "functional",
    "keras",
    "load",
    "open_engine",
    "output_names",
    "serving_function",
]


class KerasTensorFlowEngine(TensorFlowEngine):
    """A Keras model, whose one signature has the model's own names and order."""

    platform = "tensorflow_keras"

    def __init__(self, model: keras.Model) -> None:
        """Trace the model; nothing is computed yet.

        Raises:
            ModelLoadError: the model has no fixed inputs.
        """
        weight_bytes = sum(
            math.prod(weight.shape) * tf.as_dtype(weight.dtype).size
            for weight in model.weights
        )
        super().__init__({DEFAULT_SIGNATURE: serving_function(model)}, weight_bytes)


def open_engine(file: Path, settings: Settings) -> KerasTensorFlowEngine:
    """Load a .keras or .h5 file.

    Raises:
        ModelLoadError: Keras can't read the file, or it has no fixed inputs.
    """
    limit_gpu_memory(settings.gpu_memory_fraction)
    return KerasTensorFlowEngine(load(file))


def load(file: Path) -> keras.Model:
    """Read a .keras or .h5 file.

    Raises:
        ModelLoadError: Keras can't.
    """
    try:
        return keras.models.load_model(file, compile=False)
    except Exception as error:  # Keras raises whatever its many readers raise
        raise load_error(error, file) from error


def serving_function(model: keras.Model) -> Function:
    """What is served of a model: its call for inference, on inputs in a row.

    Raises:
        ModelLoadError: the model has no fixed inputs.
    """
    model = functional(model)

    def call(*inputs: tf.Tensor) -> list[tf.Tensor]:
        packed = keras.tree.pack_sequence_as(model.input, list(inputs))
        return list(keras.tree.flatten(model(packed, training=False)))

    return Function(_signature(model), call)


def functional(model: keras.Model) -> keras.Model:
    """The model with inputs and outputs that have names.

    Raises:
        ModelLoadError: the model has no fixed inputs.
    """
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
                output_names(model), keras.tree.flatten(model.output), strict=True
            )
        ),
    )


def output_names(model: keras.Model) -> list[str]:
    """The names of a functional model's outputs, in the order of its flat output."""
    if isinstance(model.output, dict):
        # Keras flattens a dict in the order of its sorted keys.
        return sorted(model.output)
    names = model.output_names
    if len(set(names)) == len(names):
        return list(names)
    # A layer that is used twice names two outputs alike.
    return [f"{name}_{place}" for place, name in enumerate(names)]


def _spec(name: str, tensor: keras.KerasTensor) -> TensorSpec:
    return row_spec(name, tf.as_dtype(tensor.dtype), tensor.shape[1:])
