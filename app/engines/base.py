"""The Engine interface: signatures, one blocking call that runs a batch, and close.

A batcher calls its engine from one thread; with batching off, request threads call it
concurrently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.generic]
# Name -> array. All arrays have the same first dimension, the rows.
Tensors: TypeAlias = Mapping[str, Array]

# TensorFlow Serving's default for requests that name no signature.
DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class TensorSpec:
    """One named input or output; `shape` is that of one row, with None for a free size.

    Strings are arrays of dtype object that hold bytes. `narrower` is the model's own
    dtype where NumPy has none, such as bfloat16 for float32. With `any_rank`, rows have
    any number of dimensions, and `shape` is empty.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int | None, ...]
    narrower: str = ""
    any_rank: bool = False

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Return whether one row of this shape fits."""
        if self.any_rank:
            return True
        if len(shape) != len(self.shape):
            return False
        for expected, actual in zip(self.shape, shape, strict=True):
            if expected is not None and expected != actual:
                return False
        return True

    def shape_text(self) -> str:
        """Return the shape of one row for messages: (224, 224, 3), (any, 16)."""
        if self.any_rank:
            return "any"
        sizes = ["any" if size is None else str(size) for size in self.shape]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def to_list(self) -> list[Any]:
        """Return the spec as JSON values, for `from_list`."""
        return [self.name, self.dtype.str, self.shape, self.narrower, self.any_rank]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> "TensorSpec":
        """Return the spec that `to_list` turned into these values."""
        name, dtype, shape, *rest = values
        return cls(name, np.dtype(dtype), tuple(shape), *rest)

    def blank(self, rows: int) -> Array:
        """Return zeros of shape (rows, *shape), 1 for free sizes, b"" for strings."""
        shape = (rows, *(size or 1 for size in self.shape))
        return np.full(shape, b"" if self.dtype.kind == "O" else 0, self.dtype)


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of one function of a model, in the model's own order.

    An engine that compiles for each size pads batches to one of `padded_sizes`. A model
    of a fixed first dimension runs batches of exactly `fixed_batch_size` rows. One that
    `takes_whole_tensors` knows no rows: a request is one run, and counts as
    one row, whose shape is that of the whole tensor. One whose rows depend on each
    other takes batches of any size, and is `unbatched`: it gets one row at a time.
    `limit_reason` says why any of these is so; else it is empty.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    fixed_batch_size: int | None = None
    takes_whole_tensors: bool = False
    limit_reason: str = ""
    padded_sizes: tuple[int, ...] = ()
    unbatched: bool = False

    def batch_sizes(self, sizes: Sequence[int]) -> Sequence[int]:
        """Return those of the sizes that a batch may have, or the model's only one.

        All of them, where the engine would pad each; the largest has to be one to which
        it pads.
        """
        if self.takes_whole_tensors or self.unbatched:
            return (1,)
        if self.fixed_batch_size is not None:
            return (self.fixed_batch_size,)
        return [size for size in sizes if size in self.padded_sizes] or sizes

    def to_list(self) -> list[Any]:
        """Return the signature as JSON values, for `from_list`."""
        inputs, outputs = (
            [spec.to_list() for spec in specs] for specs in (self.inputs, self.outputs)
        )
        limits = self.fixed_batch_size, self.takes_whole_tensors, self.limit_reason
        return [inputs, outputs, *limits, self.padded_sizes, self.unbatched]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> "Signature":
        """Return the signature that `to_list` turned into these values."""
        inputs, outputs, only, whole, reason, sizes, unbatched = values
        spec = TensorSpec.from_list
        specs = tuple(map(spec, inputs)), tuple(map(spec, outputs))
        return cls(*specs, only, whole, reason, tuple(sizes), unbatched)

    def tensor_shape(self, spec: TensorSpec) -> tuple[int | None, ...] | None:
        """Return the shape of a batch, None for free sizes and for an unknown rank."""
        if self.takes_whole_tensors:
            return None if spec.any_rank else spec.shape
        return (self.fixed_batch_size, *spec.shape)

    @cached_property
    def inputs_by_name(self) -> Mapping[str, TensorSpec]:
        """The inputs by their names."""
        return {spec.name: spec for spec in self.inputs}

    @cached_property
    def outputs_by_name(self) -> Mapping[str, TensorSpec]:
        """The outputs by their names."""
        return {spec.name: spec for spec in self.outputs}

    @property
    def has_free_outputs(self) -> bool:
        """Whether a size of an output is free, so that rows may have unlike shapes."""
        return any(None in spec.shape for spec in self.outputs)

    def batching_note(self) -> str:
        """Return how batches are limited, and why; nothing if they are not."""
        if not self.limit_reason:
            return ""
        size = self.fixed_batch_size
        kind = "not batched" if size in (None, 1) else f"batches of exactly {size} rows"
        return f"{kind}: {self.limit_reason}"


def main_signature(signatures: Mapping[str, Signature]) -> tuple[str, Signature]:
    """Return the name and signature to use where a request can't name one."""
    name = DEFAULT_SIGNATURE
    if name not in signatures:
        name = next(iter(signatures))
    return name, signatures[name]


class Engine(Protocol):
    """A ready model in one framework.

    `signatures` are its functions by name. `platform` is framework and format in the
    form of V2's model metadata, such as tensorflow_savedmodel.
    """

    signatures: Mapping[str, Signature]
    platform: str

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch: inputs (rows, *shape) to outputs (rows, *shape).

        The engine does not write to the inputs; the caller may, once this returns.
        Outputs may be views of inputs.

        Raises:
            OutOfDeviceMemory: the batch does not fit; a smaller one may.
            Exception: whatever the model raises.
        """
        ...

    def close(self) -> None:
        """Release what the engine holds; may be called twice."""
        ...
