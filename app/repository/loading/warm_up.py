"""Warm-up of a version: its first batches, before any client's.

They contain known rows, random ones. A version that answers a row with another number
or another value in a batch than alone is not batched; one that fails on all of them is
not served.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from app.batching.execution import checked
from app.batching.model_log import ModelLog
from app.engines.base import Engine, Signature, Tensors
from app.engines.batch_invariance import (
    TOLERANCE,
    Comparison,
    compare,
    differences,
    row_alone,
    why_unbatched,
)
from app.engines.loading import error_summary
from app.engines.random_rows import (
    RandomRows,
    has_empty,
    has_free_sizes,
    has_integers,
    random_row_candidates,
)
from app.engines.refusal import advice_for, reason_in
from app.errors import (
    BasketError,
    Late,
    ModelLoadError,
    NotYetLoadable,
    OutOfDeviceMemory,
    RefusedInput,
    Unavailable,
    WrongOutputs,
)

# Random rows of a batch; they repeat.
_DISTINCT_ROWS = 3
# A difference counts if it shows in this many free sizes: rows that are too short for a
# model may have answers of uninitialized memory.
_MOST_DOUBTS = 2
# A text of a row that an error quotes has more characters than a word of any error.
_LEAST_QUOTED_CHARS = 4


class _TooShort(RefusedInput):
    """Random rows are shorter than the model's smallest length."""


def warm_up(
    engine: Engine,
    sizes: Sequence[int],
    small: int,
    log: ModelLog,
    *,
    has_known_good: bool = False,
) -> dict[str, Tensors]:
    """Run batches in these increasing sizes, and compare rows alone and in a batch.

    `small` is the size of further batches, for signatures of free sizes or strings.
    Return the smallest batch of blank rows of each signature that computes them. One
    whose rows depend on each other becomes `unbatched` in the engine. With
    `has_known_good` the version has a row of its own that it computes.

    Raises:
        ModelLoadError: the model fails on rows of zeros, or on all rows for another
            reason than their values; its outputs are wrong; or rows depend on each
            other in batches of a fixed size.
        NotYetLoadable: the model's server does not answer.
    """
    known_good = {}
    for name, signature in engine.signatures.items():
        if signature.limit_reason:
            log.warning("signature %s: %s", name, signature.batching_note())
        run = _WarmUp(engine, name, sizes, log)
        computes_blank = run.run(small)
        if not has_known_good:
            run.check_computes()
        if computes_blank:
            (smallest, *_) = engine.signatures[name].batch_sizes(sizes)
            known_good[name] = _blank(signature, smallest)
    return known_good


class _WarmUp:
    """The warm-up of one signature."""

    def __init__(
        self, engine: Engine, name: str, sizes: Sequence[int], log: ModelLog
    ) -> None:
        self._engine = engine
        self._name = name
        self._signature = engine.signatures[name]
        self._sizes = self._signature.batch_sizes(sizes)
        self._log = log
        # Why random rows can't be compared, or "".
        self._not_comparable = ""
        # Whether the model computes rows of large values.
        self._takes_large = True
        # Whether any row was computed, or was refused for its values; and the first
        # other error.
        self._has_computed = self._has_refused = False
        self._failure: Exception | None = None

    def run(self, small: int) -> bool:
        """Return whether the model computes blank rows."""
        kinds = [*random_row_candidates(self._signature)]
        if _has_fixed_numbers(self._signature):
            computes_blank = self._run_fixed(kinds)
        else:
            computes_blank = self._run_free(kinds, small)
        if computes_blank and self._signature.unbatched:
            # Alone, as clients' rows will.
            return self._tolerates_blank()
        return computes_blank

    def _run_free(self, kinds: Sequence[RandomRows], small: int) -> bool:
        computes_blank = self._tolerates_blank()
        if self._signature.takes_whole_tensors:
            if not computes_blank:
                self._compare(kinds, [])
            return computes_blank
        if self._sizes[-1] > 1:
            small = min(max(small, self._sizes[0]), self._sizes[-1])
        # Of batches that no client gets, only the sizes of outputs are compared.
        may_vary = self._signature.has_free_outputs
        batches = [small] if self._sizes[-1] > 1 or may_vary else []
        rows = self._compare(kinds, batches)
        if rows is not None and not self._signature.unbatched:
            self._compare(rows.of_other_sizes(), batches)
        return computes_blank

    def _run_fixed(self, kinds: Sequence[RandomRows]) -> bool:
        # Known rows take the place of most blank ones, so that a load stays as short.
        larger = self._sizes[1:] or self._sizes
        batches = larger if larger[-1] > 1 else []
        if batches and self._compare(kinds, batches, has_blank=True):
            return True
        try:
            self._run_blank(self._sizes)
        except NotYetLoadable:
            raise
        except ModelLoadError as error:
            cause = error.__cause__
            if cause is None or isinstance(cause, WrongOutputs):
                raise
            # Zeros may be invalid, such as for a division, and so may the id 0.
            is_id = isinstance(cause, RefusedInput) and has_integers(self._signature)
            if self._compare(kinds, batches) is None and not is_id:
                raise
            return self._warn_of(error)
        return True

    def _warn_of(self, error: ModelLoadError) -> bool:
        """Log that the model does not compute blank rows; return that."""
        self._log.warning("warm-up of %s: %s; clients may do better", self._name, error)
        return False

    def check_computes(self) -> None:
        """Check that the model has computed a row, or refused one for its values.

        Raises:
            ModelLoadError: it fails on all; with its own reason.
        """
        if self._failure and not self._has_computed and not self._has_refused:
            raise ModelLoadError(
                f"{self._name} fails on all rows: {_reason(self._failure)}"
            ) from self._failure

    def _tolerates_blank(self) -> bool:
        """Return whether the model computes blank rows.

        Empty strings, and pictures of one pixel, may be invalid.
        """
        try:
            self._run_blank(self._sizes)
        except NotYetLoadable:
            raise
        except ModelLoadError as error:
            return self._warn_of(error)
        return True

    def _run_blank(self, sizes: Sequence[int]) -> None:
        for rows in sizes:
            try:
                self._run(_blank(self._signature, rows))
            except OutOfDeviceMemory as error:
                self._too_large(rows, error)
            except ModelLoadError:
                raise
            except Exception as error:
                raise ModelLoadError(
                    f"fails on a batch of {rows} rows of zeros ({_reason(error)})"
                ) from error

    def _compare(
        self,
        kinds: Iterable[RandomRows],
        batches: Sequence[int],
        *,
        has_blank: bool = False,
    ) -> RandomRows | None:
        """Compare rows of the first kind that the model accepts; None: it refuses all.

        With `has_blank` the last row of each batch is blank. Rows that are too short
        for a model may be answered with whatever is in memory. So a difference counts
        if longer ones show it, too.
        """
        refusal = None
        doubts: list[tuple[RandomRows, Comparison]] = []
        for rows in kinds:
            if doubts and rows.free_size <= doubts[-1][0].free_size:
                continue
            try:
                comparison = self._compare_kind(rows, batches, has_blank=has_blank)
            except ModelLoadError:
                raise
            except Exception as error:  # a model may raise anything
                refusal = refusal or error_summary(error)
                continue
            if comparison is None:
                return rows
            doubts.append((rows, comparison))
            is_free = has_free_sizes(self._signature)
            if not is_free or len(doubts) == _MOST_DOUBTS:
                break
        if doubts:
            rows, comparison = doubts[0]
            self._conclude(comparison)
            return rows
        if refusal:
            self._log.info("%s refuses random rows: %s", self._name, refusal)
        return None

    def _compare_kind(
        self, rows: RandomRows, batches: Sequence[int], *, has_blank: bool
    ) -> Comparison | None:
        """Return how outputs depend on the batch; None if they do not.

        All batches run that clients may get, also where answers can't be compared.
        """
        known = rows.make(_DISTINCT_ROWS, np.random.default_rng(0))
        neighbors = max(batches, default=1) - has_blank if self._sizes[-1] > 1 else 1
        compared = max(min(_DISTINCT_ROWS, neighbors), 1)
        alone = [
            row_alone(self._run(row_alone(known, row, self._sizes[0])), 0)
            for row in range(compared)
        ]
        if has_free_sizes(self._signature) and has_empty(alone[0]):
            raise _TooShort(f"rows{rows.describe()} have an empty output")
        found: Comparison | None = None
        has_run = False
        for size in batches:
            try:
                among, order = self._run_among(rows, known, size, has_blank=has_blank)
            except Exception as error:  # a model may raise anything
                if size > self._sizes[-1]:
                    return found
                if not (has_blank and isinstance(error, OutOfDeviceMemory)):
                    raise
                self._too_large(size, error)
                continue
            has_run = True
            self._check_sizes(alone[0], among, size)
            if size <= self._sizes[-1] and not self._not_comparable and found is None:
                found = self._confirmed(rows, alone, among, order, size)
                if found is not None and found.problem:
                    return found
        if has_blank and not has_run:
            self._run_blank(self._sizes[:1])
        return found

    def _run_among(
        self, rows: RandomRows, known: Tensors, size: int, *, has_blank: bool
    ) -> tuple[Tensors, list[int]]:
        """Return the outputs of a batch, and the numbers of its rows among `known`.

        Its last rows are others: of large values, which a model may refuse, and blank.
        """
        blank = [_blank(self._signature, 1)] if has_blank else []
        large = None
        if self._takes_large and size - has_blank >= _DISTINCT_ROWS:
            large = rows.large(1, np.random.default_rng(0))
        if large is not None:
            try:
                return self._run_beside(known, size, [large, *blank])
            except (ModelLoadError, OutOfDeviceMemory):
                raise
            except Exception:  # a model may raise anything
                self._takes_large = False
        return self._run_beside(known, size, blank)

    def _run_beside(
        self, known: Tensors, size: int, others: Sequence[Tensors]
    ) -> tuple[Tensors, list[int]]:
        order = [0, *(1 + n % (_DISTINCT_ROWS - 1) for n in range(size - 1))]
        order = order[: size - len(others)]
        batch = {
            name: np.concatenate([array[order], *(each[name] for each in others)])
            for name, array in known.items()
        }
        return self._run(batch), order

    def _check_sizes(self, alone: Tensors, among: Tensors, size: int) -> None:
        """Raise a ModelLoadError if a size of a row's output is the number of rows."""
        for name, array in alone.items():
            shapes = array.shape[1:], among[name].shape[1:]
            pairs = set(zip(*shapes, strict=False))
            if (self._sizes[0], size) in pairs and self._sizes[0] != size:
                raise ModelLoadError(
                    f"{self._name}: a row's {name} has shape {shapes[0]} in a batch of "
                    f"{self._sizes[0]} and {shapes[1]} in one of {size}. So Keras "
                    "computes TimeDistributed over a free number of steps: give "
                    "keras.Input a fixed one, and export it again"
                )

    def _confirmed(
        self,
        rows: RandomRows,
        alone: Sequence[Tensors],
        among: Tensors,
        order: Sequence[int],
        size: int,
    ) -> Comparison | None:
        """Return how outputs in a batch differ from those alone; None if they do not.

        Of a large batch, the first and the last rows are compared. More rows confirm a
        difference, in batches of this size.
        """
        last = len(order) - _DISTINCT_ROWS
        places = [n for n in range(len(order)) if n < _DISTINCT_ROWS or n >= last]
        found = differences(
            alone,
            [row_alone(among, place) for place in places],
            [order[place] for place in places],
        )
        kinds = {name: array.dtype.kind for name, array in alone[0].items()}
        if not any(
            each.share > (TOLERANCE if kinds[each.output] == "f" else 0)
            for each in found
        ):
            return None
        run = partial(self._engine.run, signature_name=self._name)
        comparison = compare(run, rows, size, self._sizes[0])
        is_fine = not comparison.problem and not comparison.not_comparable
        return None if is_fine else comparison

    def _conclude(self, found: Comparison) -> None:
        """Batch the signature no more if its rows depend on each other.

        Raises:
            ModelLoadError: its batches have a fixed size.
        """
        if found.not_comparable:
            self._not_comparable = found.not_comparable
            self._log.warning(
                "%s: rows can't be compared, as answers differ %s",
                self._name,
                found.not_comparable,
            )
            return
        fixed = self._signature.fixed_batch_size
        if fixed:
            raise ModelLoadError(
                f"{self._name}: {found.problem}. Its rows depend on each other, and "
                f"its batches have exactly {fixed}: save it with a free first dimension"
            )
        self._signature = replace(
            self._signature,
            unbatched=True,
            limit_reason=why_unbatched(found.problem, self._signature),
        )
        self._sizes = self._signature.batch_sizes(self._sizes)
        self._engine.signatures = {
            **self._engine.signatures,
            self._name: self._signature,
        }
        self._log.warning(
            "signature %s: %s", self._name, self._signature.batching_note()
        )

    def _run(self, batch: Tensors) -> Tensors:
        """Return a batch's outputs; those of wrong shapes are a load error."""
        (rows, *_) = map(len, batch.values())
        try:
            ran = self._engine.run(batch, self._name)
            outputs = checked(ran, rows, self._signature)
        except WrongOutputs as error:
            raise ModelLoadError(str(error)) from error
        except (Late, Unavailable) as error:
            raise NotYetLoadable(str(error)) from error
        except Exception as error:
            is_refusal = isinstance(error, RefusedInput)
            if not is_refusal and not _names_a_text(error, batch):
                self._failure = self._failure or error
            else:
                self._has_refused = True
            raise
        self._has_computed = True
        for spec in self._signature.outputs:
            shape = outputs[spec.name].shape[1:]
            if not spec.accepts(shape):
                raise ModelLoadError(
                    f"{self._name}: a row's {spec.name} has shape {shape}, and its "
                    f"signature says {spec.shape_text()}"
                )
        return outputs

    def _too_large(self, rows: int, error: OutOfDeviceMemory) -> None:
        if rows == self._sizes[0]:
            batch = "one row" if rows == 1 else f"a batch of {rows} rows"
            raise ModelLoadError(f"not even {batch} fits: {error}") from error
        self._log.warning("max_batch_size is too high: %s", error)


def _reason(error: Exception) -> str:
    """Return an engine's error on one line, and what to do where that is known."""
    if isinstance(error, BasketError):
        return str(error)
    text = str(error)
    reason = reason_in(text) or error_summary(error)
    if reason == type(error).__name__:
        return reason
    advice = advice_for(text)
    found = f"{type(error).__name__}: {reason.rstrip('.')}"
    return f"{found}. {advice}" if advice else found


def _names_a_text(error: Exception, batch: Tensors) -> bool:
    """Return whether an error quotes a text of a row, such as the name of a file."""
    texts = [
        text.decode(errors="replace")
        for array in batch.values()
        if array.dtype.kind == "O"
        for text in array.ravel().tolist()
    ]
    return any(
        len(text) >= _LEAST_QUOTED_CHARS and text in str(error) for text in texts
    )


def _blank(signature: Signature, rows: int) -> Tensors:
    return {spec.name: spec.blank(rows) for spec in signature.inputs}


def _has_fixed_numbers(signature: Signature) -> bool:
    """Return whether all inputs are numbers of fixed shapes."""
    has_strings = any(spec.dtype.kind == "O" for spec in signature.inputs)
    return not has_strings and not has_free_sizes(signature)
