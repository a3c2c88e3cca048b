"""Runs SavedModels on TensorFlow: all signatures of dense tensors.

A SavedModel is a program that may read and write files: serve trusted ones only.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.engines.base import TensorSpec
from app.engines.loading import (
    load_error,
    served_signatures,
    signature_of_tensors,
    tensor_spec,
)
from app.engines.tensorflow.engine import Function, TensorFlowEngine, limit_gpu_memory
from app.engines.tensorflow.freezing import variable_bytes
from app.engines.tensorflow.tensorflow_private import SignatureDef, signature_defs
from app.errors import ModelLoadError
from app.settings import Settings


class SavedModelEngine(TensorFlowEngine):
    """The signatures of a SavedModel by name, as TensorFlow Serving shows them.

    SignatureDefs have no order; inputs and outputs are sorted by name here.
    """

    platform = "tensorflow_savedmodel"

    def __init__(self, loaded: Any, definitions: Mapping[str, SignatureDef]) -> None:
        """Take tf.saved_model.load's result; skip signatures that can't be served.

        Raises:
            ModelLoadError: serving_default, or each signature, can't be served.
        """
        functions = served_signatures(
            loaded.signatures, lambda name: _function(loaded, name, definitions[name])
        )
        used = (loaded.signatures[name].variables for name in functions)
        super().__init__(functions, variable_bytes(chain.from_iterable(used)))


def open_engine(file: Path, settings: Settings) -> SavedModelEngine:
    """Load the SavedModel whose saved_model.pb is `file`.

    Raises:
        ModelLoadError: TensorFlow can't read it, or it can't be served.
    """
    limit_gpu_memory(settings.gpu_memory_fraction)
    try:
        loaded = tf.saved_model.load(str(file.parent), tags=[tf.saved_model.SERVING])
        definitions = signature_defs(file, tf.saved_model.SERVING)
    except Exception as error:  # TensorFlow raises whatever its readers raise
        raise load_error(error, file) from error
    return SavedModelEngine(loaded, definitions)


def _function(loaded: Any, name: str, definition: SignatureDef) -> Function:
    if not definition.inputs or not definition.outputs:
        raise ModelLoadError("it has no inputs or no outputs")
    inputs = list(_specs("input", definition.inputs))
    outputs = list(_specs("output", definition.outputs))
    dtypes = [definition.inputs[spec.name].dtype for spec in inputs]

    def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
        # The closure keeps `loaded` alive, which owns the variables and tables.
        found = loaded.signatures[name](
            **{
                spec.name: tf.cast(tensor, dtype)
                for spec, tensor, dtype in zip(inputs, tensors, dtypes, strict=True)
            }
        )
        return [found[spec.name] for spec in outputs]

    return Function(signature_of_tensors(inputs, outputs), call)


def _specs(kind: str, infos: Mapping[str, Any]) -> Iterator[TensorSpec]:
    """Yield the specs of whole tensors of TensorInfos by name, sorted."""
    for name, info in sorted(infos.items()):
        if info.WhichOneof("encoding") != "name":
            raise ModelLoadError(f"{kind} {name} is not one dense tensor")
        shape = tf.TensorShape(info.tensor_shape)
        sizes = None if shape.rank is None else shape.as_list()
        yield tensor_spec(name, tf.as_dtype(info.dtype).name, sizes)
