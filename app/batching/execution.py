"""Run pieces of jobs as one batch: stack their rows, compute, check the outputs."""

import bisect
import logging
from collections.abc import Sequence

import numpy as np

from app.batching.batch_memory import BatchMemory
from app.batching.fair_queue import Piece, rows_in
from app.engines.base import Engine, Signature, Tensors
from app.errors import BasketError, ModelFailed, WrongOutputs

_log = logging.getLogger(__name__)


def padded(rows: int, sizes: Sequence[int]) -> int:
    """The smallest of the increasing sizes that holds so many rows; else the rows."""
    place = bisect.bisect_left(sizes, rows)
    return sizes[place] if place < len(sizes) else rows


def compute(
    engine: Engine, pieces: Sequence[Piece], size: int, stack: BatchMemory
) -> Tensors:
    """The outputs (size, *shape) for the pieces' rows, filled up to a batch of `size`.

    What the engine gives for the rows that fill it up comes last. Nothing of it lies in
    the stack, which the next batch overwrites.

    Raises:
        BasketError: as the engine raised it, or ModelFailed for all else it may raise,
            or WrongOutputs.
    """
    name = pieces[0].job.signature_name
    try:
        given = engine.run(_batch(pieces, size - rows_in(pieces), stack), name)
        outputs = checked(given, size, engine.signatures[name])
        return {name: stack.own(array) for name, array in outputs.items()}
    except BasketError:
        raise
    except BaseException as error:  # a model may raise anything, SystemExit too
        _log.debug("the model failed", exc_info=True)
        raise ModelFailed(f"the model failed ({type(error).__name__})") from error


def _batch(pieces: Sequence[Piece], padding: int, stack: BatchMemory) -> Tensors:
    """The pieces' rows under each other, then the last row `padding` times more.

    As in TensorFlow Serving, real rows fill a batch up: a model may fail on zeros.
    What is one piece without padding stays a view.
    """
    batch = {}
    for name in pieces[0].job.inputs:
        parts = [job.inputs[name][start:stop] for job, start, stop in pieces]
        if padding:
            parts.append(np.repeat(parts[-1][-1:], padding, axis=0))
        batch[name] = stack.put(name, parts) if len(parts) > 1 else parts[0]
    return batch


def checked(outputs: Tensors, rows: int, signature: Signature) -> Tensors:
    """The outputs that the signature names, each with one row for each row in.

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
