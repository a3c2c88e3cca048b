"""Reads Keras files, whatever Keras runs on.

Keras chooses its backend when it is imported: keras_tensorflow and keras_jax say
which, then import this module.
"""

import math
from pathlib import Path

import keras
import numpy as np

from app.engines.base import Signature, TensorSpec
from app.engines.reading import load_error, row_spec
from app.errors import ModelLoadError

_BFLOAT16_BYTES = 2


def load(file: Path) -> keras.Model:
    """Read a .keras or .h5 file.

    Raises:
        ModelLoadError: Keras can't.
    """
    try:
        return keras.models.load_model(file, compile=False)
    except Exception as error:  # Keras raises whatever its many readers raise
        raise load_error(error, file) from error


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


def signature_of(model: keras.Model) -> Signature:
    """The signature of a functional model, with its own names and order."""
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


def weight_bytes(model: keras.Model) -> int:
    """Bytes of all weights, in the dtypes in which they are kept."""
    return sum(
        math.prod(weight.shape) * _item_bytes(weight.dtype) for weight in model.weights
    )


def _item_bytes(dtype: str) -> int:
    return _BFLOAT16_BYTES if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _spec(name: str, tensor: keras.KerasTensor) -> TensorSpec:
    return row_spec(name, tensor.dtype, tensor.shape[1:])
