"""Quantizes Keras files with Keras's own modes.

int8 is Keras's dynamic quantization: weights are stored as 8-bit integers with a scale
per column, and a layer's inputs are rounded to 8 bits with a scale per row, so that
rows stay independent of each other.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

from app.engines.keras.keras_private import nested_layers
from app.engines.loading import error_first_line
from app.engines.tensorflow.engine import limit_gpu_memory
from app.engines.tensorflow.keras_file import keras, load
from app.errors import ModelLoadError
from app.settings import Settings


@dataclass(frozen=True)
class Quantized:
    """The names of the quantized layers, and of the other layers with weights."""

    layers: tuple[str, ...]
    others: tuple[str, ...]


def quantize(file: Path, settings: Settings, kind: str, target: Path) -> Quantized:
    """Quantize the model of a .keras or .h5 file, and write `target`, a .keras file.

    `kind` is one of Keras's modes that need no calibration data: int8.

    Raises:
        ModelLoadError: Keras can't read the file, it is quantized already, or no
            layer of it can be.
    """
    limit_gpu_memory(settings.gpu_memory_fraction)
    model = load(file)
    done = [each.name for each in _layers(model) if each.quantization_mode]
    if done:
        raise ModelLoadError(f"{file.name} is quantized already: {', '.join(done)}")
    try:
        with warnings.catch_warnings():
            # Keras warns of each layer that it can't quantize.
            warnings.simplefilter("ignore", UserWarning)
            # Keras 3.15 can't load a file with quantized layers inside of layers, such
            # as attention.
            model.quantize(kind, filters=_top_level_layers(model).__contains__)
    except ValueError as error:
        raise ModelLoadError(
            f"{file.name} can't be quantized: {error_first_line(error)}"
        ) from error
    layers = _layers(model)
    found = tuple(each.name for each in layers if each.quantization_mode == kind)
    if not found:
        has = sorted({type(each).__name__ for each in layers if each.weights})
        raise ModelLoadError(
            f"nothing in {file.name} can be quantized to {kind}: Keras does that to "
            f"layers {', '.join(_quantizable_classes())}, not to those inside of "
            f"others, and with weights there are {', '.join(has) or 'none'}"
        )
    model.save(target)
    others = (each for each in layers if each.weights and each.name not in found)
    return Quantized(found, tuple(each.name for each in others))


def _layers(model: keras.Model) -> list[keras.Layer]:
    """Return the layers that have no layers inside, in the model's order."""
    return [each for each in nested_layers(model) if not nested_layers(each)]


def _top_level_layers(model: keras.Model) -> list[keras.Layer]:
    """Return the layers of a model and of models in it, but none inside of layers."""
    found: list[keras.Layer] = []
    for layer in model.layers:
        found += _top_level_layers(layer) if isinstance(layer, keras.Model) else [layer]
    return found


def _quantizable_classes() -> list[str]:
    """Return the names of this Keras's layer classes that can be quantized."""
    none = keras.Layer.quantize
    kinds = vars(keras.layers).items()
    return sorted(
        name for name, kind in kinds if getattr(kind, "quantize", none) is not none
    )
