"""Reads Keras files on any backend.

Keras fixes its backend when it is imported: the engines for TensorFlow and JAX set
KERAS_BACKEND, then import this module.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import keras
import numpy as np

from app.engines.base import Signature, TensorSpec
from app.engines.keras.content import keras_version, not_whole, suffix_of_content
from app.engines.loading import error_first_line, load_error, tensor_spec
from app.errors import ModelLoadError
from app.settings.model_files import WEIGHTS

# Keras's texts for a kind of object and a name that it does not know.
_UNKNOWN = re.compile(
    r"(?:Could not locate|Unknown|Cannot deserialize object of|Could not deserialize) "
    r"(class|function|layer|object|type):? ['`](?:(\w+)>)?([^'`]+)"
)
# Its texts for the module that the object is from.
_MODULE = re.compile(
    r"parent module (\w+)|Full object config: \{'module': '(\w+)[^']*', 'class_name'"
)
# Modules that say nothing: code of a notebook or a script, and functions.
_NO_MODULES = ("__main__", "builtins", "Custom")
_EXPORT = 'write a SavedModel with model.export("models/NAME/VERSION")'


def load(file: Path) -> keras.Model:
    """Read a .keras or .h5 file; its content counts, not its name.

    Raises:
        NotYetLoadable: the system does not let the file be read.
        ModelLoadError: it is incomplete, needs custom code, or Keras can't read it.
    """
    suffix = suffix_of_content(file)
    with _named(file, suffix) as readable:
        try:
            return keras.models.load_model(readable, compile=False)
        except Exception as error:  # Keras raises whatever its many readers raise
            raise _refusal(file, readable, error) from error


@contextmanager
def _named(file: Path, suffix: str) -> Iterator[Path]:
    """Yield a path of the file with this suffix, by which Keras chooses its reader."""
    if file.suffix == suffix:
        yield file
        return
    with TemporaryDirectory(prefix="basket-") as folder:
        link = Path(folder) / f"{file.stem}{suffix}"
        link.symlink_to(file.resolve())
        yield link


def _refusal(file: Path, readable: Path, error: Exception) -> ModelLoadError:
    """Return Keras's error as one that says what to do."""
    reason = error_first_line(error)
    if "No model config found" in reason:
        return ModelLoadError(f"{file.name} {WEIGHTS}")
    if "truncated file" in reason:
        return not_whole(file, file.stat().st_size)
    version = keras_version(readable, readable.suffix)
    if version.startswith(("1.", "2.")):
        return ModelLoadError(
            f"{file.name} was written by Keras {version}, and Keras "
            f"{keras.__version__} can't read it: where the old one is installed, "
            f"{_EXPORT}"
        )
    code = _custom_code(reason, str(error))
    if code:
        return ModelLoadError(f"{file.name}: {code} {_EXPORT}")
    return load_error(error, readable)


def _custom_code(reason: str, text: str) -> str:
    """Return which custom code a file needs, by Keras's error, or an empty text."""
    if "Python lambda" in reason:
        return "a Python lambda is code of yours, which is not run here:"
    found = _UNKNOWN.match(reason)
    if not found:
        return ""
    kind, package, name = found.groups()
    modules = [group for match in _MODULE.findall(text) for group in match]
    known = [each for each in (package, *modules) if each and each not in _NO_MODULES]
    if not known:
        return f"{kind} {name!r} is code of yours, which is not run here:"
    return (
        f"{kind} {name!r} is code of {known[0]}, which is not run here: where that is "
        "installed,"
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
