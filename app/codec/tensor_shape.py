"""The shape of a tensor that says its own, checked against a model's input."""

import math
from collections.abc import Callable

from app.engines.base import TensorSpec
from app.errors import BadInput

# NumPy has 64, of which one is the only row of a whole tensor. The product of very many
# sizes takes long, and has more digits than Python writes.
_MAX_DIMENSIONS = 63
# A header claims such sizes at no cost, and what a model makes of them may be as large
# as they are. As many values of float32 are a body of 64 MiB.
_MAX_SIZES = 1 << 24
WITHOUT_VALUES = (
    f"a shape without values whose other sizes multiply to more than {_MAX_SIZES}"
)


def is_large_without_values(shape: tuple[int, ...]) -> bool:
    """Return whether a shape of no values has other sizes that no body has."""
    return 0 in shape and math.prod(size or 1 for size in shape) > _MAX_SIZES


def check(
    shape: tuple[int, ...] | None,
    shown: Callable[[], str],
    spec: TensorSpec,
    is_whole: bool,
    place: str,
) -> tuple[int, ...]:
    """Return the shape if it fits an input, the rows first unless it is whole.

    None is no shape; `shown` returns what the client sent, shortened.

    Raises:
        BadInput: the text names what was expected and what was given.
    """
    if (
        shape is None
        or not (shape or is_whole)
        or not spec.accepts(shape if is_whole else shape[1:])
    ):
        sizes = spec.shape if is_whole else (None, *spec.shape)
        wanted = [-1 if size is None else size for size in sizes]
        raise BadInput(f"{place}: expected shape {wanted}, given {shown()}")
    if len(shape) > _MAX_DIMENSIONS:
        raise BadInput(f"{place}: no array has {len(shape)} dimensions")
    if 0 in shape:
        if is_large_without_values(shape):
            raise BadInput(f"{place}: {shown()} is {WITHOUT_VALUES}")
        if not is_whole and shape[0] == 0:
            raise BadInput(f"{place}: shape {shown()} has no rows")
    return shape
