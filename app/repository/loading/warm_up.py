"""Warm-up of a version: its first batches, before any client's.

They contain known rows, random ones: a version that answers a row with another number,
shape or value in a batch than alone is not served.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from app.batching.execution import checked
from app.batching.model_log import ModelLog
from app.engines.base import Engine, Signature, Tensors
from app.engines.batch_invariance import row_alone
from app.engines.loading import error_summary
from app.engines.random_rows import (
    RandomRows,
    has_free_sizes,
    has_integers,
    random_row_candidates,
)
from app.errors import (
    Late,
    ModelLoadError,
    NotYetLoadable,
    OutOfDeviceMemory,
    RefusedInput,
    Unavailable,
    WrongOutputs,
)
from app.repository.loading.known_rows import KnownRows

# Random rows of a batch; they repeat.
_DISTINCT_ROWS = 4


def warm_up(
    engine: Engine, sizes: Sequence[int], small: int, log: ModelLog
) -> dict[str, Tensors]:
    """Run batches in these increasing sizes, and compare a row alone and in a batch.

    `small` is the size of further batches, for signatures of free sizes or strings.
    Return the smallest batch of blank rows of each signature that computes them.

    Raises:
        ModelLoadError: the model fails on rows of zeros, its outputs are wrong, or rows
            depend on their batch.
        NotYetLoadable: the model's server does not answer.
    """
    known_good = {}
    for name, signature in engine.signatures.items():
        if signature.limit_reason:
            log.warning("signature %s: %s", name, signature.batching_note())
        own_sizes = signature.batch_sizes(sizes)
        if _WarmUp(engine, name, own_sizes, log).run(small):
            known_good[name] = _blank(signature, own_sizes[0])
    return known_good


class _WarmUp:
    """The warm-up of one signature."""

    def __init__(
        self, engine: Engine, name: str, sizes: Sequence[int], log: ModelLog
    ) -> None:
        self._engine = engine
        self._name = name
        self._signature = engine.signatures[name]
        self._sizes = sizes
        self._log = log
        self._known_rows = KnownRows(engine, name, sizes, log)

    def run(self, small: int) -> bool:
        """Return whether the model computes blank rows."""
        kinds = random_row_candidates(self._signature)
        if not _has_fixed_numbers(self._signature):
            computes_blank = self._tolerates_blank()
            if self._signature.takes_whole_tensors:
                return computes_blank
            if self._sizes[-1] > 1:
                small = min(max(small, self._sizes[0]), self._sizes[-1])
            # Of batches that no client gets, only the sizes of outputs are compared.
            batches = [small] if self._sizes[-1] > 1 or self._may_vary() else []
            rows = self._compare(kinds, batches)
            if rows is not None:
                self._compare(rows.of_other_sizes(), batches)
            return computes_blank
        # Known rows take the place of most blank ones, so that a load stays as short.
        larger = self._sizes[1:] or self._sizes
        if larger[-1] > 1 and self._compare(kinds, larger, has_blank=True):
            return True
        return self._tolerates_blank()

    def _tolerates_blank(self) -> bool:
        """Return whether the model computes blank rows.

        Empty strings, pictures of one pixel and the id 0 may be invalid.
        """
        try:
            self._run_blank(self._sizes)
        except NotYetLoadable:
            raise
        except ModelLoadError as error:
            is_id = has_integers(self._signature)
            is_invalid = is_id and isinstance(error.__cause__, RefusedInput)
            if _has_fixed_numbers(self._signature) and not is_invalid:
                raise
            self._log.warning(
                "warm-up of %s: %s; clients may do better", self._name, error
            )
            return False
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
                is_refusal = isinstance(error, RefusedInput)
                reason = str(error) if is_refusal else type(error).__name__
                raise ModelLoadError(
                    f"fails on a batch of {rows} rows of zeros ({reason})"
                ) from error

    def _compare(
        self,
        kinds: Iterable[RandomRows],
        batches: Sequence[int],
        *,
        has_blank: bool = False,
    ) -> RandomRows | None:
        """Compare rows of the first kind that the model accepts; None: it refuses all.

        With `has_blank` the last row of each batch is blank.
        """
        refusal = None
        for rows in kinds:
            try:
                self._compare_kind(rows, batches, has_blank=has_blank)
            except ModelLoadError:
                raise
            except Exception as error:  # a model may raise anything
                refusal = refusal or error_summary(error)
            else:
                return rows
        if refusal:
            self._log.info("%s refuses random rows: %s", self._name, refusal)
        return None

    def _compare_kind(
        self, rows: RandomRows, batches: Sequence[int], *, has_blank: bool
    ) -> None:
        known = rows.make(_DISTINCT_ROWS, np.random.default_rng(0))
        alone = self._run(row_alone(known, 0, self._sizes[0]))
        has_run = False
        for size in batches:
            order = [0, *(1 + n % (_DISTINCT_ROWS - 1) for n in range(size - 1))]
            batch = {name: array[order] for name, array in known.items()}
            if has_blank:
                for name, array in _blank(self._signature, 1).items():
                    batch[name][-1:] = array
            try:
                among = self._run(batch)
            except Exception as error:  # a model may raise anything
                if size > self._sizes[-1]:
                    return
                if not (has_blank and isinstance(error, OutOfDeviceMemory)):
                    raise
                self._too_large(size, error)
                continue
            has_run = True
            self._known_rows.check(rows, row_alone(alone, 0), row_alone(among, 0), size)
        if has_blank and not has_run:
            self._run_blank(self._sizes[:1])

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
        for spec in self._signature.outputs:
            shape = outputs[spec.name].shape[1:]
            if not spec.accepts(shape):
                raise ModelLoadError(
                    f"{self._name}: a row's {spec.name} has shape {shape}, and its "
                    f"signature says {spec.shape_text()}"
                )
        return outputs

    def _may_vary(self) -> bool:
        """Return whether a size of an output is free."""
        return any(None in spec.shape for spec in self._signature.outputs)

    def _too_large(self, rows: int, error: OutOfDeviceMemory) -> None:
        if rows == self._sizes[0]:
            batch = "one row" if rows == 1 else f"a batch of {rows} rows"
            raise ModelLoadError(f"not even {batch} fits: {error}") from error
        self._log.warning("max_batch_size is too high: %s", error)


def _blank(signature: Signature, rows: int) -> Tensors:
    return {spec.name: spec.blank(rows) for spec in signature.inputs}


def _has_fixed_numbers(signature: Signature) -> bool:
    """Return whether all inputs are numbers of fixed shapes."""
    has_strings = any(spec.dtype.kind == "O" for spec in signature.inputs)
    return not has_strings and not has_free_sizes(signature)
