"""The process that reads a file of Keras 2 with tf_keras, and writes a SavedModel.

`python -m app.engines.tensorflow.keras2_process FILE FOLDER --export EXPORT` writes
into FOLDER what app.engines.reference reads there, and the SavedModel as EXPORT.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from app.engines.base import DEFAULT_SIGNATURE, Signature, Tensors, TensorSpec
from app.engines.keras.content import (
    keras_version,
    model_config,
    named,
    suffix_of_content,
)
from app.engines.keras.custom_code import custom_code
from app.engines.keras.keras2_allowed import not_allowed
from app.engines.loading import error_first_line, tensor_spec
from app.engines.random_rows import random_rows_for
from app.engines.reference import (
    Reference,
    run_one_by_one,
    write_reference,
    written_errors,
)
from app.errors import ModelLoadError
from app.settings.model_files import WEIGHTS

# As for other references.
_ROWS = 5


def main(file: Path, folder: Path, export: Path) -> None:
    """Write the SavedModel, and tf_keras's answers to random rows.

    Raises:
        ModelLoadError: tf_keras can't read the file, or the model has no fixed inputs.
    """
    model = _load(file)
    inputs, outputs = _inputs(model), _outputs(model)
    signature = Signature(
        tuple(_spec(name, tensor) for name, tensor in inputs.items()),
        tuple(_spec(name, tensor) for name, tensor in outputs.items()),
    )

    def call(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        packed = tf.nest.pack_sequence_as(model.input, tensors)
        answers = tf.nest.flatten(model(packed, training=False))
        return dict(zip(outputs, answers, strict=True))

    def run(rows: Tensors) -> Tensors:
        answers = call(*(tf.constant(rows[name]) for name in inputs))
        return {name: answer.numpy() for name, answer in answers.items()}

    rows = random_rows_for(signature, run).make(_ROWS, np.random.default_rng(0))
    # Vocabularies are weights that are no variables.
    variables = (each for each in model.weights if isinstance(each, tf.Variable))
    weight_bytes = sum(each.numpy().nbytes for each in variables)
    framework = f"tf_keras {tf_keras.__version__}"
    answers = run_one_by_one(run, rows)
    found = Reference(signature, rows, answers, weight_bytes, framework)
    write_reference(folder, found)
    specs = [
        tf.TensorSpec(tensor.shape, tensor.dtype, name)
        for name, tensor in inputs.items()
    ]
    serve = tf.function(call, input_signature=specs)
    module = tf.Module()
    # It tracks the variables and lookup tables of the model.
    module.model = model
    tf.saved_model.save(module, str(export), signatures={DEFAULT_SIGNATURE: serve})


def _load(file: Path) -> Any:
    suffix = suffix_of_content(file)
    with named(file, suffix) as readable:
        config = model_config(readable)
        if config is None:
            raise ModelLoadError(f"{file.name} {WEIGHTS}")
        version = keras_version(readable, suffix)
        if not version.startswith(("1.", "2.")):
            raise ModelLoadError(f"{file.name} is no file of Keras 2")
        if code := not_allowed(config):
            raise ModelLoadError(f"{file.name}: {code}")
        # In .keras files it is of a module that is called otherwise here.
        own = {"Functional": tf_keras.Model} if suffix == ".keras" else {}
        try:
            return tf_keras.models.load_model(readable, own, compile=False)
        except Exception as error:  # Keras raises whatever its many readers raise
            reason = error_first_line(error)
            code = custom_code(reason, str(error))
            raise ModelLoadError(
                f"{file.name}: {code}"
                if code
                else f"{file.name} was written by Keras {version}, and tf_keras "
                f"{tf_keras.__version__} can't read it: {reason}"
            ) from error


def _inputs(model: Any) -> dict[str, Any]:
    if not getattr(model, "inputs", None):
        raise ModelLoadError("the model has no fixed inputs")
    return dict(zip(model.input_names, tf.nest.flatten(model.input), strict=True))


def _outputs(model: Any) -> dict[str, Any]:
    """Return a model's outputs by the names that Keras files have in Basket."""
    tensors = tf.nest.flatten(model.output)
    if isinstance(model.output, dict):
        return dict(zip(sorted(model.output), tensors, strict=True))
    names = model.output_names
    if len(set(names)) < len(names):
        names = [f"{name}_{index}" for index, name in enumerate(names)]
    return dict(zip(names, tensors, strict=True))


def _spec(name: str, tensor: Any) -> TensorSpec:
    return tensor_spec(name, tensor.dtype.name, tensor.shape[1:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--export", type=Path, required=True)
    given = parser.parse_args()
    with written_errors(given.folder):
        main(given.file, given.folder, given.export)
