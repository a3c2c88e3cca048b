"""[image] in basket.toml: how an image is converted to a model's input."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from app.errors import SettingsError
from app.settings import checks
from app.settings.tables import read_table

MODES = ("RGB", "L")


class Scale(NamedTuple):
    """Converts a value from 0 to 255: value * factor + summand.

    Both are one number for all channels, or one for each channel of the result. With
    `is_bgr` these are blue, green and red.
    """

    factor: float | tuple[float, ...] = 1.0
    summand: float | tuple[float, ...] = 0.0
    is_bgr: bool = False


_MEAN = (0.485, 0.456, 0.406)
_DEVIATION = (0.229, 0.224, 0.225)
# keras.applications calls "-1..1" mode "tf", "imagenet" "torch", and "caffe" so too.
SCALES: Mapping[str, Scale] = MappingProxyType(
    {
        "0..1": Scale(1 / 255),
        "-1..1": Scale(1 / 127.5, -1.0),
        "none": Scale(),
        "imagenet": Scale(
            tuple(1 / (255 * deviation) for deviation in _DEVIATION),
            tuple(-m / d for m, d in zip(_MEAN, _DEVIATION, strict=True)),
        ),
        "caffe": Scale(1.0, (-103.939, -116.779, -123.68), is_bgr=True),
    }
)
# Those of keras.utils.load_img, its default first.
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
# Functions of keras.utils that resize, with their interpolations, the default first.
LOAD_IMG, DATASET = "load_img", "image_dataset_from_directory"
_RESIZES = {LOAD_IMG: INTERPOLATIONS, DATASET: ("bilinear", "nearest")}
_FOR_COLORS = ("imagenet", "caffe")
_MAX_SIDE = 4096
_PLACE = "basket.toml: [image]"


@dataclass(frozen=True)
class ImageClass:
    """The class of one output value; `id` is ImageNet's, or the index."""

    id: str
    name: str


@dataclass(frozen=True)
class ImageConfig:
    """A model's image input: `size` is (height, width) in pixels.

    `mode` gives its channels: RGB three, L (gray) one. `scale` is a key of SCALES,
    `interpolation` a method of resizing. `classes` are those of the output's values in
    order, or empty. `resize` is the function of Keras whose pixels these are: LOAD_IMG
    averages pixels where it shrinks, and rounds; DATASET does neither. With
    `crop_to_aspect_ratio` the middle of an image is taken, in the proportions of size.
    """

    size: tuple[int, int]
    mode: str
    scale: str
    interpolation: str
    classes: tuple[ImageClass, ...] = ()
    resize: str = LOAD_IMG
    crop_to_aspect_ratio: bool = False

    def shape(self) -> tuple[int, int, int]:
        """Return the shape of one row: (height, width, channels)."""
        return (*self.size, len(self.mode))


def read_image_config(table: Mapping[str, Any], folder: Path) -> ImageConfig:
    """Check the table, and read the file of classes beside basket.toml.

    Raises:
        SettingsError: an unknown key, an invalid value, or a file of classes that is
            missing, malformed, or a link out of `folder`.
    """
    is_dataset = table.get("resize") == DATASET
    interpolations = _RESIZES[DATASET if is_dataset else LOAD_IMG]
    known: dict[str, Callable[[object], Any]] = {
        "size": _size,
        "mode": checks.one_of(*MODES),
        "scale": checks.one_of(*SCALES),
        "resize": checks.one_of(*_RESIZES),
        "interpolation": checks.one_of(*interpolations),
        "crop_to_aspect_ratio": checks.true_or_false,
        "classes": partial(_classes, folder),
    }
    values: dict[str, Any] = {"mode": MODES[0], "interpolation": interpolations[0]}
    values |= read_table("image", table, known, required=("size", "scale"))
    image = ImageConfig(**values)
    if image.scale in _FOR_COLORS and image.mode != "RGB":
        raise SettingsError(
            f'{_PLACE} scale = "{image.scale}" is for mode = "RGB" only'
        )
    return image


def _size(value: object) -> tuple[int, int]:
    match value:
        case [int(height), int(width)] if all(
            type(side) is int and 1 <= side <= _MAX_SIDE for side in (height, width)
        ):
            return height, width
    raise ValueError(f"expected [height, width] in pixels, each from 1 to {_MAX_SIDE}")


def _classes(folder: Path, name: object) -> tuple[ImageClass, ...]:
    if not isinstance(name, str) or Path(name).name != name or name == "..":
        raise SettingsError(
            f"{_PLACE} classes = {name!r}: expected the name of a file beside "
            "basket.toml"
        )
    place = f"{_PLACE} classes: {name}"
    try:
        # Not Path.resolve, whose error for a loop differs between Pythons.
        file = Path(os.path.realpath(folder / name, strict=True))
        if not file.is_relative_to(folder.resolve()):
            raise SettingsError(
                f"{place} is a link out of the model's folder: expected a file in it"
            )
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{place}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also too many digits or brackets
        raise SettingsError(f"{place} is not JSON: {error}") from error
    classes = _parsed_classes(content)
    if not classes:
        raise SettingsError(
            f"{place}: expected a list of names, or ImageNet's form "
            '{"0": ["n01440764", "tench"], ...} with each index from 0'
        )
    return classes


def _parsed_classes(content: Any) -> tuple[ImageClass, ...]:
    """Return the classes of ["zero"] or {"0": ["n01440764", "tench"]}, or none."""
    if isinstance(content, list):
        content = {str(index): [str(index), name] for index, name in enumerate(content)}
    classes = []
    for index in range(len(content) if isinstance(content, dict) else 0):
        match content.get(str(index)):
            case [str(identity), str(name)]:
                classes.append(ImageClass(identity, name))
            case _:
                return ()
    return tuple(classes)
