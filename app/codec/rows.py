"""{"instances": [row, ...]} to arrays, and arrays to {"predictions": [...]}.

TensorFlow Serving's row form. A model with one input takes bare values; one with
several takes an object for each row. NumPy reads the whole list at once; only when
it finds something odd does a walk look for the place to name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.codec import json_text
from app.codec.fit import fit, takes
from app.engines.base import (
    DEFAULT_SIGNATURE,
    Array,
    Signature,
    Tensors,
    TensorSpec,
)
from app.errors import BadInput

# A client's text is repeated in an error only so far.
_NAMES_SHOWN = 8


@dataclass(frozen=True)
class Request:
    """A decoded body; the answer is in columns where the request was."""

    signature_name: str
    inputs: Tensors
    columnar: bool = False
    timeout_s: float | None = None


def decode(body: bytes, signatures: Mapping[str, Signature]) -> Request:
    """Read a request's rows as arrays (rows, *shape), one for each input.

    Raises:
        BadInput: the text names the instance and what is wrong with it.
    """
    payload = json_text.loads(body)
    if not isinstance(payload, dict):
        raise BadInput('expected a JSON object: {"instances": [row, ...]}')
    if "instances" not in payload:
        raise BadInput('no "instances" in the request: {"instances": [row, ...]}')
    instances = payload["instances"]
    if not isinstance(instances, list) or not instances:
        raise BadInput('"instances" must be a list with at least one row')
    signature = signatures[DEFAULT_SIGNATURE]
    columns = _columns(instances, signature)
    # NumPy reads true as 1, and makes every value as wide as the longest string: only
    # a body without either may skip the walk.
    walk = b"true" in body or b"false" in body or _may_hold_strings(body, payload)
    inputs = {
        spec.name: _array(values, spec, walk, suffix)
        for spec, values, suffix in columns
    }
    return Request(DEFAULT_SIGNATURE, inputs)


def encode(outputs: Tensors, *, columnar: bool = False) -> bytes:
    """Write outputs (rows, *shape); the name falls away where there is only one."""
    arrays = {name: np.ascontiguousarray(array) for name, array in outputs.items()}
    predictions: Any
    if len(arrays) == 1:
        (predictions,) = arrays.values()
    else:
        rows = len(next(iter(arrays.values())))
        predictions = [
            {name: array[row] for name, array in arrays.items()} for row in range(rows)
        ]
    finite = all(
        array.dtype.kind != "f" or np.isfinite(array).all() for array in arrays.values()
    )
    write = json_text.dumps if finite else json_text.dumps_any_float
    return write({"predictions": predictions})


def _may_hold_strings(body: bytes, payload: dict[str, Any]) -> bool:
    """Say whether the body has more quotes than its keys and options account for."""
    options = sum(isinstance(value, str) for value in payload.values())
    keys = sum(len(row) for row in payload["instances"] if isinstance(row, dict))
    return body.count(b'"') > 2 * (len(payload) + options + keys)


def _columns(
    instances: list[Any], signature: Signature
) -> list[tuple[TensorSpec, list[Any], str]]:
    """Each input with its value from every row, and its place within a row."""
    names = [spec.name for spec in signature.inputs]
    objects = [isinstance(instance, dict) for instance in instances]
    if len(names) == 1 and not any(objects):
        return [(signature.inputs[0], instances, "")]
    if not all(objects):
        place = objects.index(False)
        raise BadInput(f"instances[{place}]: expected an object with {_listed(names)}")
    for place, instance in enumerate(instances):
        if instance.keys() != set(names):
            raise BadInput(
                f"instances[{place}]: keys must be equal to {_listed(names)}, "
                f"given {_listed(list(instance))}"
            )
    return [
        (spec, [instance[spec.name] for instance in instances], f".{spec.name}")
        for spec in signature.inputs
    ]


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[:40] for name in names[:_NAMES_SHOWN])
    return f"{shown}, ..." if len(names) > _NAMES_SHOWN else shown or "none"


def _array(values: list[Any], spec: TensorSpec, walk: bool, suffix: str) -> Array:
    array = None if walk else _read_at_once(values, spec)
    if array is None:
        shape = spec.shape
        for place, value in enumerate(values):
            # The first row settles the free sizes for all.
            shape = _walk(value, shape, spec, f"instances[{place}]{suffix}")
        # All values are right. Large integers need to be told their type.
        array = np.array(values, np.float64 if spec.dtype.kind == "f" else spec.dtype)
    return fit(array, spec, "instances", suffix)


def _read_at_once(values: list[Any], spec: TensorSpec) -> Array | None:
    """What NumPy makes of the values, unless something about it is odd."""
    try:
        array = np.array(values)
    except ValueError:
        return None
    plain = takes(spec, array.dtype) and spec.accepts(array.shape[1:])
    return array if plain else None


def _walk(
    value: Any, shape: tuple[int | None, ...], spec: TensorSpec, place: str
) -> tuple[int | None, ...]:
    """Raise at the first value that does not fit; return the shape, sizes settled."""
    if not shape:
        _check_leaf(value, spec, place)
        return shape
    if not isinstance(value, list):
        raise BadInput(f"{place}: expected a list, given {_shown(value)}")
    size, inner = shape[0], shape[1:]
    if size is not None and len(value) != size:
        raise BadInput(
            f"{place}: expected {size} values, given {len(value)}; a row has shape "
            f"{spec.shape_text()}"
        )
    for index, element in enumerate(value):
        inner = _walk(element, inner, spec, f"{place}[{index}]")
    return (len(value), *inner)


def _check_leaf(value: Any, spec: TensorSpec, place: str) -> None:
    kind = spec.dtype.kind
    if isinstance(value, bool):
        fits = kind == "b"
    elif isinstance(value, int):
        fits = kind in "fiu"
    else:
        fits = isinstance(value, float) and kind == "f"
    if not fits:
        raise BadInput(f"{place}: expected {spec.dtype}, given {_shown(value)}")
    if kind in "iu":
        limits = np.iinfo(spec.dtype.str)
        if not limits.min <= value <= limits.max:
            raise BadInput(f"{place}: {value} is out of range for {spec.dtype}")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    return json.dumps(value)
