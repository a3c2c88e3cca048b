"""Random rows for a signature of which only dtypes and shapes are known."""

import math
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from app.engines.base import Array, Engine, Signature, Tensors, TensorSpec
from app.engines.difference import largest_magnitude, relative_difference
from app.engines.loading import error_summary
from app.errors import ModelLoadError

# Tried in order: sizes for free dimensions (images need some width), and bounds that
# integers stay below (token ids must be within the vocabulary).
_FREE_SIZES = (32, 128, 4, 1)
# For each, other sizes that a model which accepts it may accept.
_OTHER_FREE_SIZES = {32: (64, 16), 128: (64, 160), 4: (8, 2), 1: (2,)}
_LIMITS = (256, 10, 2)
# Tried last, for models with a smallest length, such as one that crops 5,000 at each
# end.
_LONG_SIZES = (1024, 4096, 16384)
# Values of an input in a row of one of these.
_MAX_LONG_VALUES = 1 << 20
# Sizes whose outputs are not repeated; then the model draws random numbers.
_MOST_SHORT = 3
# Of an output's largest value.
_REPEATED = 1e-3
# Errors that quote a word are told from others by it.
_MIN_WORD_CHARS, _MAX_WORD_CHARS = 4, 8
_MAX_WORDS = 12
# The largest value of a pixel that is not scaled.
_LARGE = 255


@dataclass(frozen=True)
class RandomRows:
    """A source of rows: floats from 0 to 1, integers below `limit`, texts.

    A text has up to 12 short words. Of several rows the first has one word, and the
    second 12: a model that pads to the longest text of a batch shows itself.
    """

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

    def large(self, rows: int, random: np.random.Generator) -> Tensors | None:
        """Return rows with floats up to 255, as of pixels; None: there are no floats.

        A model that scales by the largest value of a batch shows itself beside them.
        """
        if all(spec.dtype.kind != "f" for spec in self.signature.inputs):
            return None
        return {
            name: np.multiply(array, _LARGE, dtype=array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in self.make(rows, random).items()
        }

    def of_other_sizes(self) -> "Iterator[RandomRows]":
        """Yield the same rows in other free sizes; nothing if there are none."""
        if has_free_sizes(self.signature):
            longer = (2 * self.free_size,)
            for free_size in _OTHER_FREE_SIZES.get(self.free_size, longer):
                yield replace(self, free_size=free_size)

    def describe(self) -> str:
        """Return the choices made for these rows, in parentheses, or an empty text."""
        parts = []
        if has_integers(self.signature):
            parts.append(f"integers below {self.limit}")
        if any(None in spec.shape for spec in self.signature.inputs):
            parts.append(f"free sizes as {self.free_size}")
        return f" ({', '.join(parts)})" if parts else ""

    def values_of_a_row(self) -> int:
        """Return the values of the input that has most of them."""
        return max(math.prod(self._shape(spec)) for spec in self.signature.inputs)

    def _shape(self, spec: TensorSpec) -> tuple[int, ...]:
        sizes = (None,) if spec.any_rank else spec.shape
        return tuple(self.free_size if size is None else size for size in sizes)

    def _values(
        self, spec: TensorSpec, shape: tuple[int, ...], random: np.random.Generator
    ) -> Array:
        if spec.dtype.kind == "O":
            return _texts(shape, random)
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
    signature: Signature, run: Callable[[Tensors], Tensors]
) -> RandomRows:
    """Return the first kind of random rows that `run` accepts.

    Rows whose output is empty, or is whatever was in memory, are too short for the
    model; they are the last resort.

    Raises:
        ModelLoadError: it accepts none of them; with its last error.
    """
    (smallest,) = signature.batch_sizes((1,))
    short: list[RandomRows] = []
    for rows in random_row_candidates(signature):
        try:
            outputs = run(rows.make(smallest, np.random.default_rng(0)))
            if not has_free_sizes(signature):
                return rows
            if has_empty(outputs):
                short = short or [rows]
            elif _is_repeated(run, rows, smallest, outputs):
                return rows
            else:
                short.append(rows)
        except Exception as error:  # a model may raise anything
            refusal = error
        if len(short) == _MOST_SHORT:
            break
    if short:
        return short[0]
    kind, reason = type(refusal).__name__, error_summary(refusal)
    raise ModelLoadError(f"the model refuses random rows: {kind}: {reason}")


def _is_repeated(
    run: Callable[[Tensors], Tensors], rows: RandomRows, count: int, outputs: Tensors
) -> bool:
    """Return whether rows have the same outputs again, after others have run."""
    run(rows.make(count, np.random.default_rng(1)))
    again = run(rows.make(count, np.random.default_rng(0)))
    return all(
        relative_difference(array, again[name], largest_magnitude([array])) <= _REPEATED
        for name, array in outputs.items()
    )


def has_empty(outputs: Tensors) -> bool:
    """Return whether an output has no values, as of rows that are too short."""
    return any(array.size == 0 for array in outputs.values())


def has_free_sizes(signature: Signature) -> bool:
    """Return whether an input leaves a size of its rows open."""
    return any(None in spec.shape or spec.any_rank for spec in signature.inputs)


def has_integers(signature: Signature) -> bool:
    """Return whether an input takes integers, which may be ids."""
    return any(spec.dtype.kind in "iu" for spec in signature.inputs)


def random_row_candidates(signature: Signature) -> Iterator[RandomRows]:
    """Yield kinds of random rows of which the model may accept one, in this order."""
    limits = _LIMITS if has_integers(signature) else _LIMITS[:1]
    if not has_free_sizes(signature):
        yield from (RandomRows(signature, _FREE_SIZES[0], limit) for limit in limits)
        return
    for free_size in (*_FREE_SIZES, *_LONG_SIZES):
        rows = RandomRows(signature, free_size, limits[0])
        if free_size in _FREE_SIZES or rows.values_of_a_row() <= _MAX_LONG_VALUES:
            yield from (replace(rows, limit=limit) for limit in limits)


def _texts(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Return texts of 1 to 12 words, (rows, *shape)."""
    counts = random.integers(1, _MAX_WORDS + 1, shape)
    if len(counts) > 1:
        counts[0], counts[1] = 1, _MAX_WORDS
    texts = [b" ".join(_word(random) for _ in range(count)) for count in counts.flat]
    return np.array(texts, object).reshape(shape)


def _word(random: np.random.Generator) -> bytes:
    letters = random.choice(
        list(string.ascii_lowercase),
        random.integers(_MIN_WORD_CHARS, _MAX_WORD_CHARS + 1),
    )
    return "".join(letters).encode()
