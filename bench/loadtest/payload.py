"""Request bodies for any model: random rows, pictures, or captured requests."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_OTHERS = re.compile(r"bool|string|u?int(8|16|32|64)")
_TENSORFLOW_TYPES = {"float": "float32", "double": "float64", "half": "float16"}


class PayloadError(Exception):
    """The model's inputs are not known, or no values can be made for them."""


class Input(NamedTuple):
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
        inputs = [Input(x["name"], x["dtype"], tuple(x["shape"])) for x in found]
    except (KeyError, TypeError) as error:
        raise PayloadError("/readyz does not say what the model takes") from error
    return _checked(inputs)


def tf_serving_inputs(metadata: Any) -> list[Input]:
    """Return the inputs of `serving_default` from TensorFlow Serving's metadata.

    The first dimension of each tensor, the batch, is left out.

    Raises:
        PayloadError: it does not name them.
    """
    inputs = []
    try:
        signatures = metadata["metadata"]["signature_def"]["signature_def"]
        for name, tensor in signatures["serving_default"]["inputs"].items():
            dtype = tensor["dtype"].removeprefix("DT_").lower()
            sizes = [int(each["size"]) for each in tensor["tensor_shape"]["dim"][1:]]
            shape = tuple(None if size < 0 else size for size in sizes)
            inputs.append(Input(name, _TENSORFLOW_TYPES.get(dtype, dtype), shape))
    except (KeyError, TypeError, ValueError) as error:
        raise PayloadError("the metadata has no usable serving_default") from error
    return _checked(inputs)


def _checked(inputs: list[Input]) -> list[Input]:
    if not inputs:
        raise PayloadError("the model has no inputs")
    for each in inputs:
        if each.dtype not in _FLOATS and not _OTHERS.fullmatch(each.dtype):
            raise PayloadError(f"input {each.name}: can't make values of {each.dtype}")
    return inputs


class _Chosen:
    """One of several bodies, at random."""

    def __init__(self, choices: list[bytes], seed: int | None) -> None:
        self._choices = choices
        self._random = np.random.default_rng(seed)

    def body(self) -> bytes:
        """Return the body of a request."""
        return self._choices[self._random.integers(len(self._choices))]


class Pictures(_Chosen):
    """Bodies that are JPEGs of 640 x 480."""

    content_type = "image/jpeg"

    def __init__(self, seed: int | None = None) -> None:
        # Made once, because making one takes longer than sending it; enlarged, because
        # drawing is slow.
        small = (picture("RGB", 40, 30, number) for number in range(_PICTURES))
        large = (image.resize(_PICTURE_SIZE) for image in small)
        super().__init__([saved(image, "JPEG", quality=90) for image in large], seed)


class CapturedRequests(_Chosen):
    """JSON bodies that repeat captured requests.

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
        newest = itertools.chain.from_iterable(map(bodies, reversed(groups)))
        super().__init__(list(itertools.islice(newest, _CAPTURED)), seed)
        if not self._choices:
            raise PayloadError(f"{path}: it has no captured requests")


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
        if wanted.dtype in _FLOATS:
            value = self._random.random(shape, np.float32)
        elif wanted.dtype == "string":
            return self._random.integers(1 << 30, size=shape).astype(str).tolist()
        else:
            value = self._random.integers(2, size=shape).astype(wanted.dtype)
        return value if shape else value.item()
