"""Request bodies for any model: random rows, pictures, or captured requests."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from app.capture.as_json import bodies
from app.capture.blocks import UnreadableBlock
from app.capture.reader import read_captured
from testing.pictures import picture, saved

# Used for sizes that the model leaves free.
_FREE_SIZE = 32
_PICTURES, _PICTURE_SIZE = 16, (640, 480)
# So many captured requests are kept as bodies.
_CAPTURED = 2000
_TENSORFLOW_TYPES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
    "DT_BFLOAT16": "bfloat16",
    "DT_BOOL": "bool",
    "DT_STRING": "string",
} | {
    f"DT_{kind}{bits}": f"{kind}{bits}".lower()
    for kind in ("INT", "UINT")
    for bits in (8, 16, 32, 64)
}


class PayloadError(Exception):
    """The model's inputs are not known, or no values can be made for them."""


@dataclass(frozen=True)
class Input:
    """One input of a model: `shape` is that of a row, None is a free size."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


def basket_payload(ready: Any) -> "Payload | Pictures":
    """Return the payload for the default model from the JSON of Basket's /readyz.

    Raises:
        PayloadError: it does not name the model's inputs.
    """
    inputs = basket_inputs(ready)
    if "image" in ready["models"][ready["default_model"]]:
        return Pictures()
    return Payload(inputs)


def basket_inputs(ready: Any) -> list[Input]:
    """Return the default model's inputs from the JSON of Basket's /readyz.

    Raises:
        PayloadError: it does not name them.
    """
    try:
        found = ready["models"][ready["default_model"]]["inputs"]
        inputs = [
            Input(each["name"], each["dtype"], tuple(each["shape"])) for each in found
        ]
    except (KeyError, TypeError) as error:
        raise PayloadError("/readyz does not say what the model takes") from error
    return _checked(inputs)


def tf_serving_inputs(metadata: Any) -> list[Input]:
    """Return the inputs of `serving_default` from TensorFlow Serving's metadata.

    The first dimension of each tensor, the batch, is left out.

    Raises:
        PayloadError: it does not name them.
    """
    try:
        signatures = metadata["metadata"]["signature_def"]["signature_def"]
        found = signatures["serving_default"]["inputs"]
        inputs = [
            Input(
                name,
                _TENSORFLOW_TYPES.get(tensor["dtype"], tensor["dtype"]),
                tuple(_size(each["size"]) for each in tensor["tensor_shape"]["dim"])[
                    1:
                ],
            )
            for name, tensor in found.items()
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise PayloadError("the metadata has no usable serving_default") from error
    return _checked(inputs)


class Pictures:
    """Bodies that are JPEGs of 640 x 480."""

    content_type = "image/jpeg"

    def __init__(self, seed: int | None = None) -> None:
        self._random = np.random.default_rng(seed)
        # Made once, because making one takes longer than sending it.
        self._files = [
            # Enlarged, because drawing is slow.
            saved(picture("RGB", 40, 30, n).resize(_PICTURE_SIZE), "JPEG", quality=90)
            for n in range(_PICTURES)
        ]

    def body(self) -> bytes:
        """Return the body of a request for one picture."""
        return self._files[self._random.integers(len(self._files))]


class CapturedRequests:
    """JSON bodies that repeat captured requests, chosen at random.

    `path` is a model's folder in BASKET_CAPTURE_DIR, or a file that `models captured
    --export` has written.

    Raises:
        PayloadError: there are none.
    """

    content_type = "application/json"

    def __init__(self, path: Path, seed: int | None = None) -> None:
        try:
            groups = read_captured(path).groups
        except (OSError, UnreadableBlock) as error:
            raise PayloadError(f"{path}: {error}") from error
        newest = itertools.islice(
            itertools.chain.from_iterable(map(bodies, reversed(groups))), _CAPTURED
        )
        self._bodies = list(newest)
        if not self._bodies:
            raise PayloadError(f"{path}: it has no captured requests")
        self._random = np.random.default_rng(seed)

    def body(self) -> bytes:
        """Return the body of a captured request."""
        return self._bodies[self._random.integers(len(self._bodies))]


class Payload:
    """JSON bodies with one random row each.

    Floats lie between 0 and 1; integers are 0 or 1, which any vocabulary has.
    """

    content_type = "application/json"

    def __init__(self, inputs: Sequence[Input], seed: int | None = None) -> None:
        self._inputs = inputs
        self._random = np.random.default_rng(seed)

    def body(self) -> bytes:
        """Return the body of a request for a new random row."""
        values = {each.name: self._value(each) for each in self._inputs}
        row = values if len(values) > 1 else next(iter(values.values()))
        return orjson.dumps({"instances": [row]}, option=orjson.OPT_SERIALIZE_NUMPY)

    def _value(self, wanted: Input) -> Any:
        shape = tuple(_FREE_SIZE if size is None else size for size in wanted.shape)
        value: Any
        if wanted.dtype in _FLOATS:
            value = self._random.random(shape, np.float32)
        elif wanted.dtype == "bool":
            value = self._random.integers(2, size=shape).astype(bool)
        elif wanted.dtype == "string":
            value = self._random.integers(1 << 30, size=shape).astype(str).tolist()
        else:
            value = self._random.integers(2, size=shape, dtype=wanted.dtype)
        return value if shape or wanted.dtype == "string" else value.item()


_FLOATS = ("float16", "bfloat16", "float32", "float64")
_DTYPES = {*_FLOATS, *_TENSORFLOW_TYPES.values()}


def _checked(inputs: list[Input]) -> list[Input]:
    if not inputs:
        raise PayloadError("the model has no inputs")
    for each in inputs:
        if each.dtype not in _DTYPES:
            raise PayloadError(f"input {each.name}: can't make values of {each.dtype}")
    return inputs


def _size(text: str) -> int | None:
    size = int(text)
    return None if size < 0 else size
