"""Captured requests: one by one, and those of the same shapes in columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from app.engines.base import Array, Tensors

# What is known of each request, by the name of its column, and its dtype. Times are
# UTC; latency is from the request's arrival until its response was encoded.
COLUMNS: Mapping[str, str] = {
    "time": "datetime64[us]",
    "request_id": "S",
    "version": "i8",
    "rows": "i8",
    "batch_rows": "i8",
    "latency_s": "f8",
}


# What the tensors of a request are: rows; whole tensors of a model that knows no rows,
# each in an array of one row; or texts of JSON, one for each instance.
ROWS, WHOLE, JSON = "rows", "whole", "json"


class Captured(NamedTuple):
    """An answered request, or those of its rows that have one shape.

    Inputs and outputs are (rows, *shape); `answered_at` is a Unix time.
    """

    signature_name: str
    inputs: Tensors
    outputs: Tensors
    form: str
    rows: int
    answered_at: float
    request_id: str
    version: int
    batch_rows: int
    latency_s: float


@dataclass(frozen=True)
class Group:
    """Requests of one signature whose tensors have the same dtypes and row shapes.

    Each of COLUMNS has an element for each request. Inputs and outputs have the rows of
    all of them, in order; strings are of dtype object and hold bytes. `form` is ROWS,
    WHOLE or JSON.
    """

    signature_name: str
    form: str
    columns: Mapping[str, Array]
    inputs: Tensors
    outputs: Tensors

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.columns["rows"])

    def slices(self) -> Iterator[slice]:
        """Yield the place of each request's rows."""
        end = 0
        for rows in self.columns["rows"].tolist():
            yield slice(end, end + rows)
            end += rows


def grouped(requests: Iterable[Captured]) -> list[Group]:
    """Return requests in groups."""
    requests = list(requests)
    try:
        # Most are of one kind, which NumPy notices sooner than `_kind`.
        return [_group(requests)]
    except (KeyError, TypeError, ValueError):
        kinds: dict[Any, list[Captured]] = {}
        for each in requests:
            kinds.setdefault(_kind(each), []).append(each)
        return [_group(each) for each in kinds.values()]


def joined(groups: Iterable[Group]) -> list[Group]:
    """Return groups of unlike kinds; those of one kind are joined in their order."""
    kinds: dict[Any, list[Group]] = {}
    for each in groups:
        kinds.setdefault(_kind(each), []).append(each)
    return [
        Group(
            *(same[0].signature_name, same[0].form),
            _concatenated([each.columns for each in same]),
            _concatenated([each.inputs for each in same]),
            _concatenated([each.outputs for each in same]),
        )
        for same in kinds.values()
    ]


def _group(requests: Sequence[Captured]) -> Group:
    """Return the group of requests of one kind.

    Raises:
        KeyError, TypeError, ValueError: their kinds differ.
    """
    names, inputs, outputs, forms, *about = zip(*requests, strict=True)
    if len({*names}) > 1 or len({*forms}) > 1:
        raise ValueError("signatures or forms differ")
    rows, answered_at, request_id, version, batch_rows, latency_s = about
    values: dict[str, Any] = {
        "time": np.rint(np.array(answered_at) * 1e6).astype(np.int64),
        "request_id": request_id,
        "version": version,
        "rows": rows,
        "batch_rows": batch_rows,
        "latency_s": latency_s,
    }
    return Group(
        *(names[0], forms[0]),
        {name: np.array(values[name], dtype) for name, dtype in COLUMNS.items()},
        _stacked(inputs),
        _stacked(outputs),
    )


def _stacked(parts: Sequence[Tensors]) -> Tensors:
    """Return the rows of tensors whose names, dtypes and row shapes are the same."""
    if len(parts) == 1:
        return parts[0]
    if len({*map(len, parts)}) > 1:
        raise ValueError("some have more tensors")
    return {
        name: np.concatenate(
            [each[name] for each in parts], dtype=array.dtype, casting="no"
        )
        for name, array in parts[0].items()
    }


def _concatenated(parts: Sequence[Tensors]) -> Tensors:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}


def _kind(each: Captured | Group) -> Any:
    """Return what is equal in all requests of a group."""
    specs = [
        tuple((name, array.dtype, array.shape[1:]) for name, array in tensors.items())
        for tensors in (each.inputs, each.outputs)
    ]
    return each.signature_name, each.form, *specs
