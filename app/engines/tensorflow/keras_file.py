"""Runs .keras and .h5 files on TensorFlow.

Each model becomes one tf.function with a free batch dimension, traced once for all
batch sizes. keras.Model.predict builds a data pipeline on every call; this does not.
"""

import logging
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import keras
import tensorflow as tf

from app.engines.base import DEFAULT_SIGNATURE
from app.engines.keras.files import (
    NeedsKeras2,
    functional,
    load,
    signature_of,
    weight_bytes,
)
from app.engines.keras.keras_private import nested_layers
from app.engines.loading import error_summary
from app.engines.random_rows import has_free_sizes
from app.engines.reference import keras2_reference
from app.engines.tensorflow import saved_model
from app.engines.tensorflow.engine import Function, TensorFlowEngine, limit_gpu_memory
from app.errors import ModelLoadError
from app.settings import Settings

_log = logging.getLogger(__name__)
# keras and load, for code outside this package, which sets Keras's backend.
__all__ = ["KerasTensorFlowEngine", "keras", "load", "open_engine", "serving_function"]


class KerasTensorFlowEngine(TensorFlowEngine):
    """A Keras model with one signature, in the model's own names and order."""

    platform = "tensorflow_keras"

    def __init__(self, model: keras.Model) -> None:
        """Trace the model; compute nothing yet.

        Raises:
            ModelLoadError: as of `serving_function`.
        """
        super().__init__(
            {DEFAULT_SIGNATURE: serving_function(model)}, weight_bytes(model)
        )


def open_engine(file: Path, settings: Settings) -> TensorFlowEngine:
    """Load a .keras or .h5 file; where only Keras 2 reads it, as a SavedModel.

    Raises:
        ModelLoadError: Keras can't read the file, or the model can't be served.
    """
    limit_gpu_memory(settings.gpu_memory_fraction)
    try:
        return KerasTensorFlowEngine(load(file))
    except NeedsKeras2:
        if find_spec("tf_keras") is None:
            raise
    _log.info(
        "%s: only Keras 2 reads it: tf_keras converts it into a SavedModel at each "
        "load; `flask --app wsgi models convert FILE` does so once",
        file.name,
    )
    with TemporaryDirectory(prefix="basket-") as folder:
        exported = Path(folder) / "saved_model"
        reference = keras2_reference(file, exported)
        engine = saved_model.open_engine(exported / "saved_model.pb", settings)
        engine.platform = KerasTensorFlowEngine.platform
        try:
            reference.check(engine)
        except BaseException:
            engine.close()
            raise
        return engine


def serving_function(model: keras.Model) -> Function:
    """Return the model's inference call on positional inputs, with its signature.

    Raises:
        ModelLoadError: the model has no fixed inputs, a layer that Keras computes
            wrongly in a graph, or one that keeps a state.
    """
    model = functional(model)
    _refuse_free_steps(model)
    _refuse_state(model)

    def call(*inputs: tf.Tensor) -> list[tf.Tensor]:
        packed = keras.tree.pack_sequence_as(model.input, list(inputs))
        return list(keras.tree.flatten(model(packed, training=False)))

    return Function(signature_of(model), call, partial(_untraceable, model))


def _refuse_free_steps(model: keras.Model) -> None:
    """Refuse TimeDistributed over a free number of steps.

    Keras 3.15 traces it wrongly: if neither the batch size nor the number of steps is
    known, it runs as many steps as there are rows.

    Raises:
        ModelLoadError: the model has such a layer, at any depth.
    """
    for layer in nested_layers(model):
        if isinstance(layer, keras.layers.TimeDistributed):
            shape = layer.get_build_config()["input_shape"]
            if shape[1] is None:
                raise ModelLoadError(
                    f"layer {layer.name!r}: Keras computes TimeDistributed wrongly for "
                    "a free number of steps: give keras.Input a fixed one"
                )


def _refuse_state(model: keras.Model) -> None:
    """Refuse recurrent layers whose state outlives a request.

    Raises:
        ModelLoadError: the model has such a layer, at any depth.
    """
    for layer in nested_layers(model):
        if getattr(layer, "stateful", False):
            raise ModelLoadError(
                f"layer {layer.name!r} has stateful=True, so a request's answer "
                "depends on those before it: set the layer's stateful to False, and "
                "save the model again"
            )


def _untraceable(model: keras.Model, error: Exception) -> str:
    """Return why a model can't be traced, with its layer's name and what to change."""
    reason = error_summary(error)
    kind = reason.partition(":")[0]
    layers = [
        repr(layer.name)
        for layer in nested_layers(model)
        if type(layer).__name__ == kind
    ]
    if layers:
        # Of TensorFlow's text, the sentence before its general advice.
        reason = f"layer {' or '.join(layers)}: {reason.partition('. ')[0]}"
    if has_free_sizes(signature_of(model)):
        return (
            f"{reason}. Give it fixed sizes: x = keras.Input((256, 256, 3)), with "
            "yours, then keras.Model(x, model(x)).save(...)"
        )
    return reason
