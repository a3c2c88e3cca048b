"""Runs SavedModels on TensorFlow: all signatures of dense tensors.

A SavedModel is a program that may read and write files: serve trusted ones only.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf

from app.engines.base import TensorSpec
from app.engines.loading import (
    load_error,
    served_signatures,
    signature_of_tensors,
    tensor_spec,
)
from app.engines.tensorflow.engine import (
    Function,
    TensorFlowEngine,
    limit_gpu_memory,
    not_dense,
)
from app.engines.tensorflow.freezing import variable_bytes
from app.engines.tensorflow.missing_ops import advice_for_missing_op
from app.engines.tensorflow.object_graph import composite_inputs, prune
from app.engines.tensorflow.tensorflow_private import (
    SavedModel,
    SignatureDef,
    read_saved_model,
)
from app.errors import ModelLoadError
from app.settings import Settings

_log = logging.getLogger(__name__)
# TensorFlow's types of tensors that have several parts -> their names.
_KINDS = {"RAGGED_TENSOR_SPEC": "ragged", "SPARSE_TENSOR_SPEC": "sparse"}


class SavedModelEngine(TensorFlowEngine):
    """The signatures of a SavedModel by name, as TensorFlow Serving shows them.

    SignatureDefs have no order; inputs and outputs are sorted by name here.
    """

    platform = "tensorflow_savedmodel"

    def __init__(
        self,
        loaded: Any,
        definitions: Mapping[str, SignatureDef],
        composites: Mapping[str, Sequence[str]],
    ) -> None:
        """Take tf.saved_model.load's result; skip signatures that can't be served.

        `composites` are the types of the inputs that are tensors of several parts.

        Raises:
            ModelLoadError: serving_default, or each signature, can't be served.
        """
        functions = served_signatures(
            loaded.signatures,
            lambda name: _function(loaded, name, definitions[name], composites[name]),
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
        content = read_saved_model(file)
        # The one with the tag of serving alone.
        graphs = [
            each
            for each in content.meta_graphs
            if set(each.meta_info_def.tags) == {tf.saved_model.SERVING}
        ]
        # Before objects that no signature uses are gone.
        composites = {
            name: list(composite_inputs(graph, name))
            for graph in graphs
            for name in graph.signature_def
        }
        loaded = _load(file, content)
        (graph,) = graphs
    except Exception as error:  # TensorFlow raises whatever its readers raise
        advice = advice_for_missing_op(str(error))
        if advice:
            raise ModelLoadError(f"{file.name}: {advice}") from error
        raise load_error(error, file) from error
    return SavedModelEngine(loaded, graph.signature_def, composites)


def _load(file: Path, content: SavedModel) -> Any:
    """Return tf.saved_model.load's result, without what no signature uses.

    An optimizer and its slots, metrics, losses and functions of training take time and
    memory, and TensorFlow may be unable to restore them: a legacy optimizer needs Keras
    2, and the functions may have operations and types of other packages.
    """
    folder = file.parent
    tags = [tf.saved_model.SERVING]
    graphs = content.meta_graphs
    # Others are read as those of TensorFlow 1, which have no objects.
    if len(graphs) != 1 or not graphs[0].HasField("object_graph_def"):
        return tf.saved_model.load(str(folder), tags)
    prune(graphs[0])
    for asset in graphs[0].asset_file_def:
        # TensorFlow joins the name to a path; a model may read the file at any time.
        asset.filename = str(folder.resolve() / "assets" / asset.filename)
    with TemporaryDirectory(prefix="basket-") as edited:
        try:
            (Path(edited) / "saved_model.pb").write_bytes(content.SerializeToString())
        except OSError as error:  # TMPDIR may be small, and a graph have constants
            _log.warning("TMPDIR has no room for a part of a graph: %s", error.strerror)
            return tf.saved_model.load(str(folder), tags)
        (Path(edited) / "variables").symlink_to(folder.resolve() / "variables")
        return tf.saved_model.load(edited, tags)


def _function(
    loaded: Any, name: str, definition: SignatureDef, composites: Sequence[str]
) -> Function:
    if not definition.inputs or not definition.outputs:
        raise ModelLoadError("it has no inputs or no outputs")
    for kind in composites:
        parts = ", ".join(sorted(definition.inputs))
        raise not_dense(f"the input with the parts {parts}", _KINDS.get(kind, kind))
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
            spec = info.composite_tensor.type_spec
            type_name = spec.TypeSpecClass.Name(spec.type_spec_class)
            if info.HasField("coo_sparse"):
                type_name = "SPARSE_TENSOR_SPEC"
            raise not_dense(f"{kind} {name}", _KINDS.get(type_name, type_name))
        shape = tf.TensorShape(info.tensor_shape)
        sizes = None if shape.rank is None else shape.as_list()
        yield tensor_spec(name, tf.as_dtype(info.dtype).name, sizes)
