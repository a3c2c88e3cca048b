"""Request bodies for any model: random rows, pictures, or captured requests."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from app.capture.as_json import bodies
from app.capture.blocks import UnreadableBlock
from app.capture.reader import read_captured
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.engines.random_rows import RandomRows
from app.engines.tensorflow_serving.wire import read_signatures
from app.errors import ModelLoadError
from testing.pictures import picture, saved

# Used for sizes that the model leaves free.
_FREE_SIZE = 32
# Integers are 0 or 1, which any vocabulary has.
_INTEGERS = 2
_PICTURES, _PICTURE_SIZE = 16, (640, 480)
# So many captured requests are kept as bodies.
_CAPTURED = 2000


class PayloadError(Exception):
    """The model's inputs are not known, or no values can be made for them."""


def basket_payload(ready: Any) -> "Payload | Pictures":
    """Return the payload for the default model from the JSON of Basket's /readyz.

    Raises:
        PayloadError: it does not name the model's inputs.
    """
    signature = basket_signature(ready)
    if "image" in ready["models"][ready["default_model"]]:
        return Pictures()
    return Payload(signature)


def basket_signature(ready: Any) -> Signature:
    """Return what the default model takes, from the JSON of Basket's /readyz.

    Raises:
        PayloadError: it does not say so.
    """
    try:
        inputs = tuple(
            TensorSpec(each["name"], _dtype(each["dtype"]), tuple(each["shape"]))
            for each in ready["models"][ready["default_model"]]["inputs"]
        )
    except (KeyError, TypeError) as error:
        raise PayloadError("/readyz does not say what the model takes") from error
    if not inputs:
        raise PayloadError("the model has no inputs")
    for spec in inputs:
        if spec.dtype.kind not in "fiubO":
            raise PayloadError(f"input {spec.name}: can't make values of {spec.dtype}")
    return Signature(inputs, ())


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(object if name == "string" else name)


def tf_serving_signature(metadata: Any) -> Signature:
    """Return `serving_default` from TensorFlow Serving's metadata.

    Raises:
        PayloadError: it is not there, or can't be read.
    """
    try:
        found = read_signatures(orjson.dumps(metadata), DEFAULT_SIGNATURE)
    except ModelLoadError as error:
        raise PayloadError(f"no usable {DEFAULT_SIGNATURE}: {error}") from error
    return found[DEFAULT_SIGNATURE]


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
    """JSON bodies with one random row each."""

    content_type = "application/json"

    def __init__(self, signature: Signature, seed: int | None = None) -> None:
        self._rows = RandomRows(signature, _FREE_SIZE, _INTEGERS)
        self._random = np.random.default_rng(seed)

    def body(self) -> bytes:
        """Return the body of a request for a new random row."""
        made = self._rows.make(1, self._random)
        values = {name: array[0] for name, array in made.items()}
        row = values if len(values) > 1 else next(iter(values.values()))
        options = orjson.OPT_SERIALIZE_NUMPY
        return orjson.dumps({"instances": [row]}, option=options, default=_plain)


def _plain(value: Any) -> Any:
    """Return what JSON has for the strings of a tensor."""
    return value.decode() if isinstance(value, bytes) else value.tolist()
