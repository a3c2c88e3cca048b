"""Tensors as clients need them to build a request."""

from collections.abc import Iterable
from typing import Any

from app.codec.fit import type_name
from app.engines.base import TensorSpec


def row_tensors(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    """Return name, dtype and shape of each tensor's rows; None: unknown rank."""
    return [
        {
            "name": spec.name,
            "dtype": type_name(spec.dtype),
            "shape": None if spec.any_rank else spec.shape,
        }
        for spec in specs
    ]
