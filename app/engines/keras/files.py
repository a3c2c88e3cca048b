"""Reads Keras files on any backend.

Keras fixes its backend when it is imported: the engines for TensorFlow and JAX set
KERAS_BACKEND, then import this module.
"""

import math
import os
import re
from pathlib import Path
from zipfile import is_zipfile

import keras
import numpy as np

from app.engines.base import Signature, TensorSpec
from app.engines.loading import (
    error_first_line,
    load_error,
    report_unreadable,
    tensor_spec,
)
from app.errors import ModelLoadError

# Keras's texts for a kind of object and a name that it does not know.
_UNKNOWN = re.compile(
    r"(?:Could not locate|Unknown|Cannot deserialize object of) "
    r"(class|function|layer|object|type):? ['`]([^'`]+)"
)


def load(file: Path) -> keras.Model:
    """Read a .keras or .h5 file.

    Raises:
        NotYetLoadable: the system does not let the file be read.
        ModelLoadError: it is incomplete, needs custom code, or Keras can't read it.
    """
    with report_unreadable(file.name), file.open("rb") as content:
        size_bytes = os.fstat(content.fileno()).st_size
        is_whole = file.suffix != ".keras" or is_zipfile(content)
    if not is_whole:
        raise ModelLoadError(
            f"{file.name} is no whole .keras file ({size_bytes} bytes): half copied, "
            "or damaged"
        )
    try:
        return keras.models.load_model(file, compile=False)
    except Exception as error:  # Keras raises whatever its many readers raise
        code = _custom_code(error_first_line(error))
        if not code:
            raise load_error(error, file) from error
        raise ModelLoadError(
            f"{file.name}: {code} is code of yours, which is not run here: write a "
            'SavedModel with model.export("models/NAME/VERSION")'
        ) from error


def _custom_code(reason: str) -> str:
    """Return the custom code that a file needs, by Keras's error, or an empty text."""
    found = _UNKNOWN.match(reason)
    if found:
        return f"{found[1]} {found[2]!r}"
    return "a Python lambda" if "Python lambda" in reason else ""


def functional(model: keras.Model) -> keras.Model:
    """Return the model in functional form, in which inputs and outputs have names.

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
    """Return the signature of a functional model, in its own names and order."""
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
    """Return a functional model's output names in the order of its flat output."""
    outputs = model.output
    if isinstance(outputs, dict) and not any(
        map(keras.tree.is_nested, outputs.values())
    ):
        # Keras flattens a dict in the order of its sorted keys.
        return sorted(outputs)
    names = model.output_names
    if len(set(names)) == len(names):
        return list(names)
    # A layer that is used twice names two outputs alike.
    return [f"{name}_{index}" for index, name in enumerate(names)]


def weight_bytes(model: keras.Model) -> int:
    """Return the bytes of all weights in the dtypes in which they are stored."""
    # ml_dtypes, which Keras imports, adds bfloat16 to NumPy.
    return sum(
        math.prod(weight.shape) * np.dtype(weight.dtype).itemsize
        for weight in model.weights
    )


def _spec(name: str, tensor: keras.KerasTensor) -> TensorSpec:
    return tensor_spec(name, tensor.dtype, tensor.shape[1:])
