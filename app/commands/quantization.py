"""Quantises Keras files: the way of Keras itself, with smaller weights as the result.

int8 is what Keras calls dynamic quantisation: weights are stored as 8-bit integers, a
scale for each column; a layer's input is rounded to 8 bits as it comes, a scale for
each row, so that rows stay independent of each other.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

from app.engines.keras.keras_private import nested_layers
from app.engines.reading import first_line
from app.engines.tensorflow.engine import limit_gpu_memory
from app.engines.tensorflow.keras_file import keras, load
from app.errors import ModelLoadError
from app.settings import Settings


@dataclass(frozen=True)
class Quantized:
    """The names of the layers that were quantised, and of those with weights left."""

    layers: tuple[str, ...]
    others: tuple[str, ...]


def quantize(file: Path, settings: Settings, kind: str, target: Path) -> Quantized:
    """Write the quantised model of a .keras or .h5 file as `target`, a .keras file.

    `kind` is one of Keras's modes that need no data: int8.

    Raises:
        ModelLoadError: Keras can't read the file, it is quantised already, or nothing
            in it can be.
    """
    limit_gpu_memory(settings.gpu_memory_fraction)
    model = load(file)
    done = [each.name for each in _layers(model) if each.quantization_mode]
    if done:
        raise ModelLoadError(f"{file.name} is quantised already: {', '.join(done)}")
    try:
        with warnings.catch_warnings():
            # Of each layer that Keras has no such way for.
            warnings.simplefilter("ignore", UserWarning)
            # Keras 3.15 can't load a file of layers quantised inside of other layers,
            # such as attention's.
            model.quantize(kind, filters=_stand_alone(model).__contains__)
    except ValueError as error:
        raise ModelLoadError(
            f"{file.name} can't be quantised: {first_line(error)}"
        ) from error
    layers = _layers(model)
    found = tuple(each.name for each in layers if each.quantization_mode == kind)
    if not found:
        has = sorted({type(each).__name__ for each in layers if each.weights})
        raise ModelLoadError(
            f"nothing in {file.name} can be quantised to {kind}: Keras does that to "
            f"layers {', '.join(_kinds_of_layers())}, not to those inside of others, "
            f"and with weights there are {', '.join(has) or 'none'}"
        )
    model.save(target)
    others = (each for each in layers if each.weights and each.name not in found)
    return Quantized(found, tuple(each.name for each in others))


def _layers(model: keras.Model) -> list[keras.Layer]:
    """Return the layers that have no layers inside, in the model's order."""
    return [each for each in nested_layers(model) if not nested_layers(each)]


def _stand_alone(model: keras.Model) -> list[keras.Layer]:
    """The layers that are a model's own, of a model in the model too."""
    found: list[keras.Layer] = []
    for layer in model.layers:
        found += _stand_alone(layer) if isinstance(layer, keras.Model) else [layer]
    return found


def _kinds_of_layers() -> list[str]:
    """The classes of this Keras's layers that have a way to be quantised."""
    none = keras.Layer.quantize
    kinds = vars(keras.layers).items()
    return sorted(
        name for name, kind in kinds if getattr(kind, "quantize", none) is not none
    )
