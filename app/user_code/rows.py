"""What preprocess gave, as the inputs of a model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.codec import nested
from app.codec.fit import fit, type_name
from app.codec.uneven import Uneven, grouped, one_by_one
from app.engines.base import Array, Signature, Tensors, TensorSpec
from app.engines.python import objects
from app.errors import BasketError, ModelFailed

_GAVE = "service.py: preprocess gave"


def inputs_of(
    values: Sequence[Any], places: Sequence[str], signature: Signature
) -> Tensors | Uneven:
    """Return values, each an array or a dict of arrays by input, as rows.

    Raises:
        ModelFailed: one does not fit the signature; the text has its place.
    """
    rows = [
        _row(value, signature, place)
        for value, place in zip(values, places, strict=True)
    ]
    names = [spec.name for spec in signature.inputs]
    inputs = grouped(names, list(zip(*rows, strict=True)))
    runs_alone = signature.unbatched and signature.has_free_outputs
    if runs_alone and len(rows) > 1 and not isinstance(inputs, Uneven):
        return one_by_one(inputs)
    return inputs


def _row(value: Any, signature: Signature, place: str) -> list[Array]:
    specs = signature.inputs
    names = [spec.name for spec in specs]
    if not isinstance(value, dict):
        if len(specs) > 1:
            raise ModelFailed(
                f"{_GAVE} {_kind(value)} for {place}, expected a dict with "
                f"{', '.join(names)}"
            )
        value = {specs[0].name: value}
    if value.keys() != set(names):
        given = ", ".join(map(repr, value)) or "nothing"
        raise ModelFailed(
            f"{_GAVE} {given[:200]} for {place}, expected {', '.join(names)}"
        )
    return [_input_of(value[spec.name], spec, place) for spec in specs]


def _input_of(value: Any, spec: TensorSpec, place: str) -> Array:
    """Return one input of a row in its dtype."""
    if type(value) is list:
        row = nested.plain_row(value, spec)
        if row is not None:
            return row
    what = f"of {spec.name} for {place}"
    try:
        if spec.dtype.kind == "O":
            array = objects.bytes_of(value)
        else:
            array = np.asarray(value)
            if array.dtype.kind not in "biuf":
                raise TypeError("no numbers")
    except (TypeError, ValueError):
        raise ModelFailed(
            f"{_GAVE} {_kind(value)} {what}, expected {type_name(spec.dtype)} of "
            f"shape {spec.shape_text()}"
        ) from None
    if not spec.accepts(array.shape):
        raise ModelFailed(
            f"{_GAVE} shape {array.shape} {what}, expected {spec.shape_text()}"
        )
    try:
        row = fit(array[np.newaxis], spec, spec.name)
    except BasketError:
        raise ModelFailed(
            f"{_GAVE} {type_name(array.dtype)} {what}, which does not fit "
            f"{type_name(spec.dtype)}"
        ) from None
    return row.reshape(array.shape)


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
