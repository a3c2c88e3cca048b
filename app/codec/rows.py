"""TensorFlow Serving's predict bodies: rows or columns to arrays, and back.

Rows: {"instances": [row, ...]} is answered by {"predictions": [...]}. Columns:
{"inputs": ...} is answered by {"outputs": ...}. A model with one input takes bare
values; one with several takes an object for each row, or one object of columns.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from app.codec import columns, json_text, strings, uneven
from app.codec.bounds import UNBOUNDED, Bounds
from app.codec.fit import check_equal_rows, check_json_dtype
from app.codec.json_rows import write_plain_rows
from app.codec.row_hint import WrongShape
from app.codec.uneven import Uneven
from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors
from app.errors import BadInput
from app.settings.image_config import ImageConfig


class Form(NamedTuple):
    """The form of a request, which its response has too.

    `columnar`: a tensor for each name instead of rows. `is_bare`: rows of shape (1,)
    are values without a list around them. `is_whole`: tensors have no rows, and stand
    in arrays of one row.
    """

    columnar: bool = False
    is_bare: bool = False
    is_whole: bool = False


ROWS = Form()


class UnevenRows(BadInput):
    """Rows have unlike shapes, of which the model may take each."""


class Request(NamedTuple):
    """A decoded body."""

    signature_name: str
    inputs: Tensors | Uneven
    form: Form = ROWS
    timeout_s: float | None = None


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
        UnevenRows: rows have unlike shapes, and the bounds do not say to split them.
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
    found = _columns(payload, signature)
    image = image if name == DEFAULT_SIGNATURE else None
    reading = columns.ColumnReading(columns.may_have_bools(body), image, bounds)
    if signature.takes_whole_tensors:
        wholes = {column.spec.name: reading.read_whole(column) for column in found}
        return Request(name, wholes, Form(columnar, is_whole=True))
    try:
        inputs, is_bare = _even(found, reading)
    except WrongShape as error:
        if not any(None in spec.shape for spec in signature.inputs):
            raise
        if not bounds.splits_rows:
            raise UnevenRows(str(error)) from error
        return Request(name, uneven.read(found, reading), Form(columnar))
    form = Form(columnar, is_bare) if columnar or is_bare else ROWS
    if not (signature.unbatched and signature.has_free_outputs):
        return Request(name, inputs, form)
    # Each row runs alone, so outputs may have unlike shapes.
    if not bounds.splits_rows:
        raise UnevenRows("rows have outputs of unlike shapes")
    return Request(name, uneven.one_by_one(inputs), form)


def _columns(payload: Mapping[str, Any], signature: Signature) -> list[columns.Column]:
    columnar = "inputs" in payload
    if columnar == ("instances" in payload):
        raise BadInput(
            "expected only one of 'inputs' or 'instances', given both"
            if columnar
            else "Missing 'inputs' or 'instances' key"
        )
    if columnar:
        return columns.of_inputs(payload["inputs"], signature)
    return columns.of_instances(payload["instances"], signature)


def _even(
    found: list[columns.Column], reading: columns.ColumnReading
) -> tuple[Tensors, bool]:
    """Return the inputs of rows of one shape, and whether all are bare."""
    inputs, all_bare = {}, True
    for column in found:
        is_bare = column.is_bare()
        inputs[column.spec.name] = reading.read(column, is_bare=is_bare)
        all_bare &= is_bare
    if len(found) > 1:
        check_equal_rows(inputs, "inputs.{}")
    return inputs, all_bare


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


def encode(outputs: Tensors, form: Form = ROWS) -> bytes:
    """Return the body of a response in a form; the name of an only output is left out.

    Raises:
        BadInput: rows are asked for, and whole tensors are not as long as each other.
        Unsupported: JSON has no values for the dtype of an output.
    """
    if form is ROWS:
        body = write_plain_rows(outputs)
        if body is not None:
            return body
    columnar = form.columnar
    if form.is_bare:
        outputs = {
            name: array.reshape(-1) if array.shape[1:] == (1,) else array
            for name, array in outputs.items()
        }
    if form.is_whole:
        outputs = {
            name: array.reshape(array.shape[1:]) for name, array in outputs.items()
        }
        if not columnar:
            _check_equal_lengths(outputs)
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


def _check_equal_lengths(tensors: Tensors) -> None:
    """Check that whole tensors are lists of as many rows as each other.

    Raises:
        BadInput: they are not.
    """
    lengths = {len(array) if array.ndim else None for array in tensors.values()}
    if None in lengths or len(lengths) > 1:
        raise BadInput(
            "this model is not batched, and its outputs are no rows: send "
            '{"inputs": ...} instead of {"instances": ...}'
        )


def _json_values(array: Array, name: str) -> Any:
    """Return what `json_text` writes: arrays or values of numbers, strings."""
    if array.dtype.kind == "O" and isinstance(next(array.flat, None), np.ndarray):
        return [_json_values(row, name) for row in array]
    if not array.ndim:
        return _json_values(array.reshape(1), name)[0]
    if array.dtype.kind == "O":
        return strings.to_json(array, name)
    check_json_dtype(name, array.dtype)
    return json_text.shortest_floats(np.ascontiguousarray(array))
