"""What is written of an answered request: its tensors, or JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.capture.captured import JSON, Captured
from app.capture.recorder import NotCapturable
from app.codec import json_objects, json_text
from app.codec.uneven import Uneven
from app.engines.base import DEFAULT_SIGNATURE, Array, Tensors


def of_groups(
    name: str, inputs: Uneven, outputs: Tensors, form: str, about: Any
) -> list[Captured]:
    """Return a request for each shape of its rows."""
    return [
        Captured(name, group, _at(places, outputs), form, len(places), *about[1:])
        for group, places in zip(inputs.groups, inputs.places, strict=True)
    ]


def of_instances(instances: Sequence[bytes], body: bytes, about: Any) -> list[Captured]:
    """Return JSON instances, and the predictions in a response.

    Raises:
        NotCapturable: there are no instances.
    """
    if not instances:
        raise NotCapturable("JSON can't hold their instances")
    value = json_text.loads(body)
    # A CloudEvent has them in its data.
    predictions = json_objects.lines(value.get("data", value)["predictions"])
    inputs, outputs = (
        {"json": np.array(each, object)} for each in (instances, predictions)
    )
    return [Captured(DEFAULT_SIGNATURE, inputs, outputs, JSON, *about)]


def _at(places: Sequence[int], outputs: Tensors) -> Tensors:
    """Return the outputs of some rows, which are of one shape."""
    found: dict[str, Array] = {}
    for name, array in outputs.items():
        is_ragged = array.dtype.hasobject and isinstance(array[places[0]], np.ndarray)
        rows = [array[place] for place in places]
        found[name] = np.stack(rows) if is_ragged else array[places]
    return found


def owned(outputs: Tensors) -> tuple[Tensors, int]:
    """Return arrays that do not keep a whole batch in memory, and their bytes."""
    owned = {
        name: array if array.base is None else array.copy()
        for name, array in outputs.items()
    }
    return owned, bytes_of(outputs)


def bytes_of(tensors: Tensors) -> int:
    """Return the bytes of tensors, those of strings included."""
    size = 0
    for array in tensors.values():
        size += array.nbytes
        if array.dtype.hasobject:
            size += _bytes_of_strings(array)
    return size


def _bytes_of_strings(array: Array) -> int:
    """Return the bytes of strings, or of rows where these differ in shape."""
    values = array.ravel().tolist()
    return sum([v.nbytes if isinstance(v, np.ndarray) else len(v) for v in values])
