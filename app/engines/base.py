"""What every engine offers: signatures, one blocking run of a batch, an end.

A batcher calls its engine from one thread; with batching off, request threads
call it side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.generic]
# Name -> array. All arrays have the same first dimension, the rows.
Tensors: TypeAlias = Mapping[str, Array]

# TensorFlow Serving's name for the signature of requests that name none.
DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class TensorSpec:
    """One named input or output; `shape` is that of one row, None a free size.

    Strings are arrays of dtype object that hold bytes.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int | None, ...]

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Say whether one row of this shape fits."""
        return len(shape) == len(self.shape) and all(
            wanted in (None, given)
            for wanted, given in zip(self.shape, shape, strict=True)
        )

    def shape_text(self) -> str:
        """The shape of one row as people write it: (224, 224, 3), (any, 16)."""
        sizes = ["any" if size is None else str(size) for size in self.shape]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def to_list(self) -> list[Any]:
        """What JSON can carry of it."""
        return [self.name, self.dtype.str, self.shape]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> "TensorSpec":
        """The spec of which `to_list` gave these values."""
        name, dtype, shape = values
        return cls(name, np.dtype(dtype), tuple(shape))

    def blank(self, rows: int) -> Array:
        """Zeros of shape (rows, *shape), free sizes taken as 1; b"" for strings."""
        shape = (rows, *(size or 1 for size in self.shape))
        return np.full(shape, b"" if self.dtype.kind == "O" else 0, self.dtype)


@dataclass(frozen=True)
class Signature:
    """What one function of a model takes and gives, in the model's own order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def main_signature(signatures: Mapping[str, Signature]) -> tuple[str, Signature]:
    """What stands for a model where no signature can be named: its name, and it."""
    name = DEFAULT_SIGNATURE
    if name not in signatures:
        name = next(iter(signatures))
    return name, signatures[name]


class Engine(Protocol):
    """A ready model in one framework.

    `signatures` are its functions by name; `platform` says framework and format,
    as V2's metadata has it, such as tensorflow_savedmodel.
    """

    signatures: Mapping[str, Signature]
    platform: str

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch: inputs (rows, *shape) to outputs (rows, *shape).

        The inputs are the caller's, who may write over them afterwards. They are left
        as they are; outputs may be views of them.

        Raises:
            OutOfDeviceMemory: the batch does not fit; a smaller one may.
            Exception: whatever the model raises.
        """
        ...

    def close(self) -> None:
        """Let go of what the engine holds; may be called twice."""
        ...
