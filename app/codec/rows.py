"""TensorFlow Serving's predict bodies: rows or columns to arrays, and back.

Rows: {"instances": [row, ...]} is answered by {"predictions": [...]}. Columns:
{"inputs": ...} is answered by {"outputs": ...}. A model with one input takes bare
values; one with several takes an object for each row, or one object of columns.
"""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from app.codec import images, json_text, nested, strings
from app.codec.bounds import UNBOUNDED, Bounds, too_many_rows
from app.codec.fit import check_json_dtype
from app.codec.json_arrays import mixed, numbers
from app.codec.json_arrays.split import Numbers
from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors, TensorSpec
from app.errors import BadInput
from app.settings.image_config import ImageConfig

# The most names that an error lists.
_NAMES_SHOWN = 8


class Request(NamedTuple):
    """A decoded body; `columnar` says that the response has columns too."""

    signature_name: str
    inputs: Tensors
    columnar: bool = False
    timeout_s: float | None = None


class _Column(NamedTuple):
    """One input's rows, and their place in the body: place[row]suffix."""

    spec: TensorSpec
    rows: list[Any] | Numbers
    place: str
    suffix: str = ""


def decode(
    body: bytes,
    signatures: Mapping[str, Signature],
    image: ImageConfig | None = None,
    bounds: Bounds = UNBOUNDED,
) -> Request:
    """Return a request's rows as arrays (rows, *shape), one for each input.

    With `image`, rows of the default signature may be images: {"b64": "..."}.

    Raises:
        BadInput: the text names the place and what is wrong there.
        Unsupported: JSON has no values for the dtype of an input.
        Unavailable: too many large bodies or images at once.
    """
    with json_text.opened(body, bounds.check) as payload:
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
        columns = _columns_of_inputs(payload["inputs"], signature)
    else:
        columns = _columns_of_instances(payload["instances"], signature)
    image = image if name == DEFAULT_SIGNATURE else None
    reading = _Reading(_may_have_bools(body), image, bounds)
    inputs = {each.spec.name: reading.read(each) for each in columns}
    _check_equal_rows(columns, inputs)
    return Request(name, inputs, columnar)


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


def encode(outputs: Tensors, *, columnar: bool = False) -> bytes:
    """Return the body of a response; the name of an only output is left out.

    Raises:
        Unsupported: JSON has no values for the dtype of an output.
    """
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


class _Reading(NamedTuple):
    """How the columns of a request are read."""

    has_bools: bool
    image: ImageConfig | None
    bounds: Bounds

    def read(self, column: _Column) -> Array:
        """Return one input's rows."""
        spec, rows, place, suffix = column
        if isinstance(rows, Numbers):
            return numbers.read(rows, spec, place, suffix, self.bounds)
        if len(rows) > self.bounds.max_rows:
            raise too_many_rows(self.bounds, len(rows))
        if self.image is not None and any(map(strings.is_b64, rows)):
            files, check = _image_files(rows, place, suffix), self.bounds.check
            return images.decode(files, self.image, spec, place, suffix, check)
        if any(isinstance(row, Numbers) for row in rows):
            return mixed.read(rows, spec, place, suffix, self.bounds, self.has_bools)
        return nested.read(rows, spec, place, suffix, has_bools=self.has_bools)


def _image_files(rows: list[Any], place: str, suffix: str) -> list[bytes]:
    files = []
    for number, row in enumerate(rows):
        at = f"{place}[{number}]{suffix}"
        if not strings.is_b64(row):
            raise BadInput(f'{at}: expected {{"b64": ...}}, as another row is')
        try:
            files.append(strings.to_bytes(row))
        except ValueError as error:
            raise BadInput(f"{at}: not base64: {error}") from None
    return files


def _json_values(array: Array, name: str) -> Any:
    """Return what `json_text` writes: an array of numbers, or lists of strings."""
    if array.dtype.kind == "O":
        return strings.to_json(array, name)
    check_json_dtype(name, array.dtype)
    return json_text.shortest_floats(np.ascontiguousarray(array))


def _may_have_bools(body: bytes) -> bool:
    """Return whether the body holds the text of a bool, which may stand in a string."""
    # One letter is found many times as fast as a word.
    return (b"r" in body and b"true" in body) or (b"l" in body and b"false" in body)


def _columns_of_instances(instances: Any, signature: Signature) -> list[_Column]:
    has_one_input = len(signature.inputs) == 1
    names = [spec.name for spec in signature.inputs]
    if isinstance(instances, Numbers):
        if has_one_input:
            return [_Column(signature.inputs[0], instances, "instances")]
        raise BadInput(f"instances[0]: expected an object with {_listed(names)}")
    if not isinstance(instances, list) or not instances:
        raise BadInput("'instances' must be a list/array with at least one row")
    named = [
        isinstance(instance, dict) and not (has_one_input and strings.is_b64(instance))
        for instance in instances
    ]
    if has_one_input and True not in named:
        return [_Column(signature.inputs[0], instances, "instances")]
    if not all(named):
        row = named.index(False)
        raise BadInput(f"instances[{row}]: expected an object with {_listed(names)}")
    for row, instance in enumerate(instances):
        if instance.keys() != set(names):
            raise BadInput(
                f"instances[{row}]: keys must be equal to {_listed(names)}, "
                f"given {_listed(list(instance))}"
            )
    return [
        _Column(
            spec, [row[spec.name] for row in instances], "instances", f".{spec.name}"
        )
        for spec in signature.inputs
    ]


def _columns_of_inputs(inputs: Any, signature: Signature) -> list[_Column]:
    names = [spec.name for spec in signature.inputs]
    if not isinstance(inputs, dict) or strings.is_b64(inputs):
        if len(names) > 1:
            raise BadInput(f"inputs: expected an object with {_listed(names)}")
        columns = [_Column(signature.inputs[0], inputs, "inputs")]
    else:
        missing = [name for name in names if name not in inputs]
        if missing:
            raise BadInput(f"Missing named input: {missing[0]} in 'inputs' object.")
        columns = [
            _Column(spec, inputs[spec.name], f"inputs.{spec.name}")
            for spec in signature.inputs
        ]
    for column in columns:
        if not isinstance(column.rows, list | Numbers) or not column.rows:
            raise BadInput(f"{column.place}: expected a list with at least one row")
    return columns


def _check_equal_rows(columns: list[_Column], inputs: Tensors) -> None:
    for one, other in itertools.pairwise(columns):
        rows, others = len(inputs[one.spec.name]), len(inputs[other.spec.name])
        if rows != others:
            raise BadInput(
                f"{one.place} has {rows} rows and {other.place} {others}; rows run in "
                "batches, so the first dimensions must be equal"
            )


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[:40] for name in names[:_NAMES_SHOWN])
    return f"{shown}, ..." if len(names) > _NAMES_SHOWN else shown or "none"
