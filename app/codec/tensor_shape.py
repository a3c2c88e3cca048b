"""The shape of a tensor that says its own, checked against a model's input."""

from collections.abc import Callable

from app.engines.base import TensorSpec
from app.errors import BadInput

# NumPy has 64, of which one is the only row of a whole tensor. The product of very many
# sizes takes long, and has more digits than Python writes.
_MAX_DIMENSIONS = 63


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
    if not is_whole and shape[0] == 0:
        raise BadInput(f"{place}: shape {shown()} has no rows")
    return shape
