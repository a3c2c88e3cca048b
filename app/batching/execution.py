"""Run jobs' rows as one batch: concatenate, compute, check the outputs, split them."""

import bisect
import copy
import logging
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from app.batching.batch_memory import BatchMemory
from app.batching.fair_queue import JobSlice
from app.batching.job import Job, notify
from app.engines.base import Array, Engine, Signature, Tensors
from app.errors import BasketError, ModelFailed, WrongOutputs

_log = logging.getLogger(__name__)


def padded(rows: int, sizes: Sequence[int]) -> int:
    """Return the first of the increasing sizes that is at least `rows`, else `rows`."""
    place = bisect.bisect_left(sizes, rows)
    return sizes[place] if place < len(sizes) else rows


def compute(
    engine: Engine,
    slices: Sequence[JobSlice],
    rows: int,
    size: int,
    memory: BatchMemory,
) -> Tensors:
    """Return the outputs (size, *shape) for the slices' `rows`, padded to `size`.

    The outputs of the padding come last. No output is a view of `memory`, which the
    next batch overwrites.

    Raises:
        BasketError: the engine's own, ModelFailed for anything else that it raises,
            or WrongOutputs.
    """
    name = slices[0].job.signature_name
    try:
        batch = _concatenated(slices, size - rows, memory)
        outputs = checked(engine.run(batch, name), size, engine.signatures[name])
        return {name: memory.own(array) for name, array in outputs.items()}
    except BasketError:
        raise
    except BaseException as error:  # a model may raise anything, SystemExit too
        _log.debug("the model failed", exc_info=True)
        raise ModelFailed(f"the model failed ({type(error).__name__})") from error


def _concatenated(
    slices: Sequence[JobSlice], padding: int, memory: BatchMemory
) -> Tensors:
    """Return the slices' rows in one array per input, then the last row as padding.

    As in TensorFlow Serving, padding repeats a real row: a model may fail on zeros. A
    single slice without padding stays a view.
    """
    batch = {}
    for name in slices[0].job.inputs:
        parts = [
            # A view of all rows costs as much as the copy of a small row.
            job.inputs[name][start:stop]
            if stop - start < job.rows
            else job.inputs[name]
            for job, start, stop in slices
        ]
        if padding:
            parts.append(repeated(parts[-1][-1:], padding))
        batch[name] = memory.put(name, parts) if len(parts) > 1 else parts[0]
    return batch


def repeated(row: Array, count: int) -> Array:
    """Return a row (1, *shape) so many times.

    Objects, which the user's own code may change, are copies where they can be.
    """
    rows = np.repeat(row, count, axis=0)
    # Strings are bytes, which nobody can change.
    if row.dtype.hasobject and not all(isinstance(each, bytes) for each in row.flat):
        for place in np.ndindex(rows.shape):
            with suppress(Exception):
                rows[place] = copy.deepcopy(rows[place])
    return rows


def checked(outputs: Tensors, rows: int, signature: Signature) -> Tensors:
    """Return the outputs that the signature names, each with `rows` rows.

    Raises:
        WrongOutputs: one is missing, or has another number of rows.
    """
    for spec in signature.outputs:
        array = outputs.get(spec.name)
        if array is None:
            raise WrongOutputs(f"the model gave no output {spec.name!r}")
        given = len(array) if array.ndim else 0
        if given != rows:
            raise WrongOutputs(
                f"the model gave {given} rows of {spec.name!r} for {rows} rows"
            )
    return {spec.name: outputs[spec.name] for spec in signature.outputs}


def answer(
    slices: Sequence[JobSlice], outputs: Tensors, batch_rows: int, now: float
) -> None:
    """Give each slice its rows of the outputs, and notify all complete jobs."""
    answered: list[Job] = []
    (first_name, first), *others = outputs.items()
    end = 0
    for job, start, stop in slices:
        begin = end
        end += stop - start
        rows = {first_name: first[begin:end]}
        for name, array in others:
            rows[name] = array[begin:end]
        if stop - start < job.rows:
            if job.add(start, rows, batch_rows, now):
                answered.append(job)
        elif job.claim.acquire(False):
            job.batch_rows = batch_rows
            job.finished_at = now
            # Last, as they make it an answered job.
            job.outputs = rows
            answered.append(job)
    notify(answered)


def fail(slices: Sequence[JobSlice], error: BasketError) -> None:
    """Answer all jobs that have no answer yet with an error."""
    # Avoid a reference cycle: the tracebacks of its causes hold the slices.
    error.__cause__ = error.__context__ = None
    failed = [job for job, _, _ in slices if job.claim.acquire(False)]
    for job in failed:
        job.error = error
    notify(failed)
