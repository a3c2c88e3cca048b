"""TensorFlow Serving's predict bodies: rows or columns to arrays, and back.

Rows: {"instances": [row, ...]} is answered by {"predictions": [...]}. Columns:
{"inputs": ...} is answered by {"outputs": ...}. A model with one input takes bare
values; one with several takes an object for each row, or one object of columns.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from app.codec import columns, json_text, strings
from app.codec.bounds import UNBOUNDED, Bounds
from app.codec.fit import check_json_dtype
from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors
from app.errors import BadInput
from app.settings.image_config import ImageConfig


class Request(NamedTuple):
    """A decoded body.

    `columnar`: the response has columns too. `is_bare`: rows of shape (1,) are values
    without a list around them, and so are those of the response.
    """

    signature_name: str
    inputs: Tensors
    columnar: bool = False
    timeout_s: float | None = None
    is_bare: bool = False


def decode(
    body: bytes,
    signatures: Mapping[str, Signature],
    image: ImageConfig | None = None,
    bounds: Bounds = UNBOUNDED,
    *,
    ignore_tail: bool = False,
) -> Request:
    """Return a request's rows as arrays (rows, *shape), one for each input.

    With `image`, rows of the default signature may be images: {"b64": "..."}. With
    `ignore_tail`, text behind the JSON is ignored.

    Raises:
        BadInput: the text names the place and what is wrong there.
        Unsupported: JSON has no values for the dtype of an input.
        Unavailable: too many large bodies or images at once.
    """
    with json_text.opened(body, bounds.check, ignore_tail=ignore_tail) as payload:
        return read(payload, body, signatures, image, bounds)


def read(
    payload: Any,
    body: bytes,
    signatures: Mapping[str, Signature],
    image: ImageConfig | None = None,
    bounds: Bounds = UNBOUNDED,
) -> Request:
    """Return the request of a payload, which is JSON's value of the body or in it.

    Raises:
        BasketError: as `decode` does.
    """
    if not isinstance(payload, dict):
        raise BadInput('expected a JSON object: {"instances": [row, ...]}')
    name = _signature_name(payload)
    signature = find_signature(signatures, name)
    columnar = "inputs" in payload
    if columnar == ("instances" in payload):
        raise BadInput(
            "expected only one of 'inputs' or 'instances', given both"
            if columnar
            else "Missing 'inputs' or 'instances' key"
        )
    if columnar:
        found = columns.of_inputs(payload["inputs"], signature)
    else:
        found = columns.of_instances(payload["instances"], signature)
    image = image if name == DEFAULT_SIGNATURE else None
    reading = columns.Reading(columns.may_have_bools(body), image, bounds)
    inputs, all_bare = {}, True
    for column in found:
        is_bare = column.is_bare()
        inputs[column.spec.name] = reading.read(column, is_bare=is_bare)
        all_bare &= is_bare
    if len(found) > 1:
        columns.check_equal_rows(found, inputs)
    return Request(name, inputs, columnar, is_bare=all_bare)


def _signature_name(payload: Mapping[str, Any]) -> str:
    name = payload.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str):
        raise BadInput("'signature_name' key must be a string value.")
    return name or DEFAULT_SIGNATURE


def find_signature(signatures: Mapping[str, Signature], name: str) -> Signature:
    """Return the signature of that name.

    Raises:
        BadInput: the model has none of that name.
    """
    if name not in signatures:
        raise BadInput(
            f'Serving signature name: "{name[:80]}" not found in signature def'
        )
    return signatures[name]


def encode(outputs: Tensors, *, columnar: bool = False, is_bare: bool = False) -> bytes:
    """Return the body of a response; the name of an only output is left out.

    With `is_bare`, rows of shape (1,) are values without a list around them.

    Raises:
        Unsupported: JSON has no values for the dtype of an output.
    """
    if is_bare:
        outputs = {
            name: array.reshape(-1) if array.shape[1:] == (1,) else array
            for name, array in outputs.items()
        }
    values = {name: _json_values(array, name) for name, array in outputs.items()}
    whole: Any = values
    if len(values) == 1:
        (whole,) = values.values()
    elif not columnar:
        rows = len(next(iter(values.values())))
        whole = [
            {name: array[row] for name, array in values.items()} for row in range(rows)
        ]
    return json_text.dumps_any_float({"outputs" if columnar else "predictions": whole})


def _json_values(array: Array, name: str) -> Any:
    """Return what `json_text` writes: an array of numbers, or lists of strings."""
    if array.dtype.kind == "O":
        return strings.to_json(array, name)
    check_json_dtype(name, array.dtype)
    return json_text.shortest_floats(np.ascontiguousarray(array))
