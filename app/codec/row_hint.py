"""What a row looks like, for errors."""

import itertools
import math
from collections.abc import Iterator

from app.engines.base import TensorSpec
from app.errors import BadInput

# Values of a row that is shown whole, and of a list in it.
_MAX_VALUES = 12
_MAX_IN_LIST = 3


class WrongShape(BadInput):
    """A list for a value, a value for a list, or a list of another length."""


def wrong_shape(text: str, spec: TensorSpec, suffix: str = "") -> WrongShape:
    """Return the error of a row of another shape, with an example of a right one."""
    return WrongShape(f"{text}; {row_hint(spec, suffix)}")


def row_hint(spec: TensorSpec, suffix: str = "") -> str:
    """Return a row's shape with an example: a row has shape (2,): [[1, 2]].

    `suffix` is ".name" where rows are objects with an input's name.
    """
    is_short = math.prod(size or 1 for size in spec.shape) <= _MAX_VALUES
    row = _example(spec.shape, _values(spec), is_short)
    if suffix:
        row = f'{{"{suffix[1:]}": {row}, ...}}'
    return f"a row has shape {spec.shape_text()}: [{row}]"


def _values(spec: TensorSpec) -> Iterator[str]:
    constants = {"b": "true", "O": '"a"'}
    if spec.dtype.kind in constants:
        return itertools.repeat(constants[spec.dtype.kind])
    return map(str, itertools.count(1))


def _example(
    shape: tuple[int | None, ...], values: Iterator[str], is_short: bool
) -> str:
    if not shape:
        return next(values)
    size, *inner = shape
    if size is not None and size <= _MAX_IN_LIST:
        shown = size if is_short else min(size, 1)
    else:
        shown = 1 if inner else 2
    items = [_example(tuple(inner), values, is_short) for _ in range(shown)]
    if shown != size:
        items.append("...")
    return f"[{', '.join(items)}]"
