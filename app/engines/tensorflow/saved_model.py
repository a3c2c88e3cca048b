"""Runs SavedModels on TensorFlow: all signatures that can be batched.

A SavedModel is a program: it may read and write files. Only trusted ones should be
served.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from app.engines.base import Signature, TensorSpec
from app.engines.reading import batched, load_error, row_shape, row_spec
from app.engines.tensorflow.engine import (
    Function,
    TensorFlowEngine,
    limit_gpu_memory,
    tf,
)
from app.engines.tensorflow.freezing import size_bytes
from app.errors import ModelLoadError
from app.settings import Settings


class SavedModelEngine(TensorFlowEngine):
    """The signatures of a SavedModel by their names.

    They are what TensorFlow Serving shows, the model's SignatureDefs. Inputs and
    outputs of these have names and no order; here they stand in that of their names.
    """

    platform = "tensorflow_savedmodel"

    def __init__(
        self, loaded: Any, definitions: Mapping[str, meta_graph_pb2.SignatureDef]
    ) -> None:
        """Take what tf.saved_model.load gives; signatures without a batch are left out.

        Raises:
            ModelLoadError: no signature can be batched; with the reason for each.
        """
        functions = batched(
            loaded.signatures, lambda name: _function(loaded, name, definitions[name])
        )
        used = (loaded.signatures[name].variables for name in functions)
        super().__init__(functions, size_bytes(chain.from_iterable(used)))


def open_engine(file: Path, settings: Settings) -> SavedModelEngine:
    """Load the SavedModel whose saved_model.pb is `file`.

    Raises:
        ModelLoadError: TensorFlow can't read it, or no signature can be batched.
    """
    limit_gpu_memory(settings.gpu_memory_fraction)
    try:
        loaded = tf.saved_model.load(str(file.parent), tags=[tf.saved_model.SERVING])
        definitions = _definitions(file)
    except Exception as error:  # TensorFlow raises whatever its readers raise
        raise load_error(error, file) from error
    return SavedModelEngine(loaded, definitions)


def _definitions(file: Path) -> Mapping[str, meta_graph_pb2.SignatureDef]:
    """The signatures as they are stored: a loaded function may rename its inputs."""
    graphs = saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs
    serving = {tf.saved_model.SERVING}
    (graph,) = (each for each in graphs if set(each.meta_info_def.tags) == serving)
    return dict(graph.signature_def)


def _function(
    loaded: Any, name: str, definition: meta_graph_pb2.SignatureDef
) -> Function:
    if not definition.inputs or not definition.outputs:
        raise ModelLoadError("it has no inputs or no outputs")
    inputs = tuple(_specs("input", definition.inputs))
    outputs = tuple(_specs("output", definition.outputs))
    dtypes = [definition.inputs[spec.name].dtype for spec in inputs]

    def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
        # Variables and tables live only as long as `loaded` does.
        given = loaded.signatures[name](
            **{
                spec.name: tf.cast(tensor, dtype)
                for spec, tensor, dtype in zip(inputs, tensors, dtypes, strict=True)
            }
        )
        return [given[spec.name] for spec in outputs]

    return Function(Signature(inputs, outputs), call)


def _specs(
    kind: str, tensors: Mapping[str, meta_graph_pb2.TensorInfo]
) -> Iterator[TensorSpec]:
    for name, info in sorted(tensors.items()):
        place = f"{kind} {name}"
        shape = tf.TensorShape(info.tensor_shape)
        if info.WhichOneof("encoding") != "name":
            raise ModelLoadError(f"{place} is not one dense tensor")
        row = row_shape(place, shape.as_list() if shape.rank is not None else None)
        yield row_spec(name, tf.as_dtype(info.dtype).name, row)
