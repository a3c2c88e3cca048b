"""Writes Keras models for other servers, with the names that Basket serves."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import keras

from app.engines.base import DEFAULT_SIGNATURE
from app.engines.keras.files import functional, load, output_names
from app.engines.loading import error_summary
from app.engines.openvino import import_openvino
from app.engines.tensorflow.engine import limit_gpu_memory
from app.engines.tensorflow.keras_file import serving_function
from app.errors import ModelLoadError
from app.settings import Settings


def export(file: Path, settings: Settings, form: str, folder: Path) -> None:
    """Load a .keras or .h5 file and write its model into `folder`, a new one.

    savedmodel: for TensorFlow Serving, with the one signature that Basket serves;
    onnx: model.onnx; openvino: model.xml and model.bin.

    Raises:
        ModelLoadError: Keras can't read the file, or can't write it in this format.
    """
    limit_gpu_memory(settings.gpu_memory_fraction)
    export_model(load(file), form, folder)


def export_model(model: keras.Model, form: str, folder: Path) -> None:
    """Write a loaded model into `folder` in one of the formats of `export`.

    Raises:
        ModelLoadError: Keras can't write it in this format.
    """
    folder.mkdir(parents=True)
    try:
        _WRITERS[form](model, folder)
    except ModelLoadError:
        raise
    except Exception as error:  # the converters raise whatever they raise
        raise ModelLoadError(
            f"can't be written as {form}: {error_summary(error)}"
        ) from error


def _write_saved_model(model: keras.Model, folder: Path) -> None:
    archive = keras.export.ExportArchive()
    # Tracks the lookup tables of layers.
    archive.track(model)
    archive.add_endpoint(DEFAULT_SIGNATURE, serving_function(model).traced())
    archive.write_out(str(folder), verbose=False)


def _write_onnx(model: keras.Model, folder: Path) -> None:
    file = folder / "model.onnx"
    _convert(model, "onnx", file)
    # The converter only logs an operation that ONNX lacks; the file is then invalid.
    import_module("onnx").checker.check_model(str(file))


def _write_openvino(model: keras.Model, folder: Path) -> None:
    import_openvino()
    _convert(model, "openvino", folder / "model.xml")


def _convert(model: keras.Model, form: str, file: Path) -> None:
    model = functional(model)
    inputs = keras.tree.flatten(model.inputs)
    outputs = keras.tree.flatten(model.output)
    # Converters keep output names only if they are the keys of a dict.
    named = keras.Model(inputs, dict(zip(output_names(model), outputs, strict=True)))
    specs = [
        keras.InputSpec(dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)
        for tensor in inputs
    ]
    named.export(str(file), format=form, verbose=False, input_signature=[specs])


_WRITERS: dict[str, Callable[[keras.Model, Path], None]] = {
    "savedmodel": _write_saved_model,
    "onnx": _write_onnx,
    "openvino": _write_openvino,
}
