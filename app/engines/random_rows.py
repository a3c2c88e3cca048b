"""Random rows for a signature of which only dtypes and shapes are known."""

import math
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from app.engines.base import Array, Engine, Signature, Tensors, TensorSpec
from app.engines.loading import error_summary
from app.errors import ModelLoadError

# Tried in order: sizes for free dimensions (images need some width), and bounds that
# integers stay below (token ids must be within the vocabulary).
_FREE_SIZES = (32, 128, 4, 1)
# For each, other sizes that a model which accepts it may accept.
_OTHER_FREE_SIZES = {32: (64, 16), 128: (64, 160), 4: (8, 2), 1: (2,)}
_LIMITS = (256, 10, 2)
_MAX_WORD_CHARS = 8


@dataclass(frozen=True)
class RandomRows:
    """A source of rows: floats from 0 to 1, integers below `limit`, short words."""

    signature: Signature
    free_size: int
    limit: int

    def make(self, rows: int, random: np.random.Generator) -> Tensors:
        """Return so many new random rows, (rows, *shape) by input."""
        return {
            spec.name: self._values(spec, (rows, *self._shape(spec)), random)
            for spec in self.signature.inputs
        }

    def blank(self, rows: int) -> Tensors:
        """Return rows of zeros, as a server may pad with, shaped as the random rows."""
        return {
            spec.name: TensorSpec(spec.name, spec.dtype, self._shape(spec)).blank(rows)
            for spec in self.signature.inputs
        }

    def of_other_sizes(self) -> "Iterator[RandomRows]":
        """Yield the same rows in other free sizes; nothing if there are none."""
        if has_free_sizes(self.signature):
            for free_size in _OTHER_FREE_SIZES[self.free_size]:
                yield replace(self, free_size=free_size)

    def describe(self) -> str:
        """Return the choices made for these rows, in parentheses, or an empty text."""
        parts = []
        if has_integers(self.signature):
            parts.append(f"integers below {self.limit}")
        if any(None in spec.shape for spec in self.signature.inputs):
            parts.append(f"free sizes as {self.free_size}")
        return f" ({', '.join(parts)})" if parts else ""

    def _shape(self, spec: TensorSpec) -> tuple[int, ...]:
        sizes = (None,) if spec.any_rank else spec.shape
        return tuple(self.free_size if size is None else size for size in sizes)

    def _values(
        self, spec: TensorSpec, shape: tuple[int, ...], random: np.random.Generator
    ) -> Array:
        if spec.dtype.kind == "O":
            words = [_word(random) for _ in range(math.prod(shape))]
            return np.array(words, object).reshape(shape)
        if spec.dtype.kind == "f":
            return random.random(shape).astype(spec.dtype)
        is_bool = spec.dtype.kind == "b"
        limit = 2 if is_bool else min(self.limit, np.iinfo(spec.dtype.str).max)
        return random.integers(0, limit, shape).astype(spec.dtype)


def accepted_random_rows(engine: Engine, signature_name: str) -> RandomRows:
    """Return the first kind of random rows that the model accepts.

    Raises:
        ModelLoadError: the model accepts none of them; with its last error.
    """
    signature = engine.signatures[signature_name]
    return random_rows_for(signature, lambda batch: engine.run(batch, signature_name))


def random_rows_for(
    signature: Signature, run: Callable[[Tensors], object]
) -> RandomRows:
    """Return the first kind of random rows that `run` accepts.

    Raises:
        ModelLoadError: it accepts none of them; with its last error.
    """
    (smallest,) = signature.batch_sizes((1,))
    for rows in random_row_candidates(signature):
        try:
            run(rows.make(smallest, np.random.default_rng(0)))
        except Exception as error:  # a model may raise anything
            refusal = error
        else:
            return rows
    kind, reason = type(refusal).__name__, error_summary(refusal)
    raise ModelLoadError(f"the model refuses random rows: {kind}: {reason}")


def has_free_sizes(signature: Signature) -> bool:
    """Return whether an input leaves a size of its rows open."""
    return any(None in spec.shape or spec.any_rank for spec in signature.inputs)


def has_integers(signature: Signature) -> bool:
    """Return whether an input takes integers, which may be ids."""
    return any(spec.dtype.kind in "iu" for spec in signature.inputs)


def random_row_candidates(signature: Signature) -> Iterator[RandomRows]:
    """Yield kinds of random rows of which the model may accept one, in this order."""
    free_sizes = _FREE_SIZES if has_free_sizes(signature) else _FREE_SIZES[:1]
    for free_size in free_sizes:
        for limit in _LIMITS if has_integers(signature) else _LIMITS[:1]:
            yield RandomRows(signature, free_size, limit)


def _word(random: np.random.Generator) -> bytes:
    letters = random.choice(
        list(string.ascii_lowercase), random.integers(1, _MAX_WORD_CHARS + 1)
    )
    return "".join(letters).encode()
