"""Captured requests as JSON: for people, and as bodies that ask again."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from app.capture.captured import JSON, WHOLE, Group
from app.codec import json_text, strings
from app.engines.base import Array, Tensors


def records(group: Group) -> Iterator[dict[str, Any]]:
    """Yield each request for `json_text.dumps_any_float`."""
    columns = {name: column.tolist() for name, column in group.columns.items()}
    for number, rows in enumerate(group.slices()):
        yield {
            "time": f"{columns['time'][number].isoformat(timespec='milliseconds')}Z",
            "request_id": columns["request_id"][number].decode(),
            "version": columns["version"][number],
            "signature": group.signature_name,
            "batch_rows": columns["batch_rows"][number],
            "ms": round(1000 * columns["latency_s"][number], 3),
            "inputs": _values(group, group.inputs, rows),
            "outputs": _values(group, group.outputs, rows),
        }


def bodies(group: Group) -> Iterator[bytes]:
    """Yield the body of a POST to /predict that repeats each request."""
    for rows in group.slices():
        values = _values(group, group.inputs, rows)
        if group.form == JSON:
            yield orjson.dumps({"instances": values})
        else:
            named = {"signature_name": group.signature_name, "inputs": values}
            yield json_text.dumps_any_float(named)


def _values(group: Group, tensors: Tensors, rows: slice) -> Any:
    if group.form == JSON:
        return [orjson.Fragment(each) for each in tensors["json"][rows].tolist()]
    return {
        name: _json(array[rows][0] if group.form == WHOLE else array[rows], name)
        for name, array in tensors.items()
    }


def _json(array: Array | Any, name: str) -> Any:
    array = np.asarray(array)
    if array.dtype.hasobject:
        return strings.to_json(array, name)
    if not array.ndim:
        return array.item()
    return json_text.shortest_floats(np.ascontiguousarray(array))
