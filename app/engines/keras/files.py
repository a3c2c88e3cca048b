"""Reads Keras files on any backend.

Keras fixes its backend when it is imported: the engines for TensorFlow and JAX set
KERAS_BACKEND, then import this module.
"""

import json
import math
import re
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import keras
import numpy as np

from app.engines.base import Signature, TensorSpec
from app.engines.keras.content import (
    keras_version,
    model_config,
    named,
    not_whole,
    suffix_of_content,
)
from app.engines.keras.custom_code import custom_code, unknown_name
from app.engines.keras.keras2 import ONLY_KERAS2, as_keras3, check_order
from app.engines.loading import error_first_line, load_error, tensor_spec
from app.engines.reference import INSTALL_KERAS2
from app.errors import ModelLoadError
from app.settings.model_files import WEIGHTS

# Keras's text for a file of weights.
_WEIGHTS_ONLY = "No model config found"
# A name in a file, which may have a package that was registered.
_NAME = re.compile(r'"((?:[^">]+>)?(\w+))"')
_CONVERT = f"{INSTALL_KERAS2}, then `flask --app wsgi models convert FILE`"


class NeedsKeras2(ModelLoadError):
    """A file of Keras 2 that Keras 3 can't read; the text has what to do."""


def load(file: Path) -> keras.Model:
    """Read a .keras or .h5 file; its content counts, not its name.

    Raises:
        NotYetLoadable: the system does not let the file be read.
        NeedsKeras2: it is one that Keras 2 wrote, and Keras 3 can't read.
        ModelLoadError: it is incomplete, needs custom code, or Keras can't read it.
    """
    suffix = suffix_of_content(file)
    with named(file, suffix) as readable:
        version = keras_version(readable, suffix)
        old_version = version if version.startswith(("1.", "2.")) else ""
        try:
            with keras.saving.custom_object_scope(_known_objects(readable)):
                if old_version:
                    return _load_keras2(readable)
                return keras.models.load_model(readable, compile=False)
        except Exception as error:  # Keras raises whatever its many readers raise
            raise _refusal(file, readable, old_version, error) from error


def _known_objects(file: Path) -> dict[str, Any]:
    """Return what is registered, or offered by service.py, by its names in a file.

    A name with another package, or where service.py registers nothing, is one of these
    by the name alone. A scope of Keras hides the one around it, so all are returned.
    """
    get = keras.saving.get_registered_object
    names = _NAME.findall(json.dumps(model_config(file)))
    found = {full: get(full) or get(name) for full, name in names}
    return {name: each for name, each in found.items() if each is not None}


def _load_keras2(file: Path) -> keras.Model:
    """Read a file of Keras 2 by its configuration as Keras 3 has it."""
    config = model_config(file)
    if config is None:
        raise ValueError(_WEIGHTS_ONLY)
    config = as_keras3(config)
    if file.suffix == ".h5":
        # It takes the configuration apart.
        model = keras.saving.deserialize_keras_object(deepcopy(config))
        model.load_weights(file)
    else:
        with TemporaryDirectory(prefix="basket-") as folder:
            with ZipFile(file) as archive:
                archive.extractall(folder)
            (Path(folder) / "config.json").write_text(json.dumps(config))
            model = keras.models.load_model(folder, compile=False)
    check_order(model, config)
    return model


def _refusal(
    file: Path, readable: Path, old_version: str, error: Exception
) -> ModelLoadError:
    """Return Keras's error as one that says what to do."""
    reason = error_first_line(error)
    if _WEIGHTS_ONLY in reason:
        return ModelLoadError(f"{file.name} {WEIGHTS}")
    if "truncated file" in reason:
        return not_whole(file, file.stat().st_size)
    found = load_error(error, readable)
    unknown = unknown_name(reason)
    is_gone = bool(old_version) and unknown in ONLY_KERAS2
    code = "" if is_gone else custom_code(reason, str(error))
    if code:
        return ModelLoadError(f"{file.name}: {code}")
    if not old_version:
        return found
    cause = str(found).removeprefix(f"{readable.name}: ")
    return NeedsKeras2(
        f"{file.name} was written by Keras {old_version}, and Keras "
        f"{keras.__version__} can't read it "
        f"({f'it has no {unknown}' if is_gone else cause}): {_CONVERT}"
    )


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
