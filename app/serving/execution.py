"""Run pieces of jobs as one batch, and give each job its own rows back."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from app.engines.base import Array, Engine, Signature, Tensors
from app.errors import BasketError, ModelFailed
from app.serving.job_queue import Piece

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Whoever counts what a model does; telemetry is one."""

    def batch_ran(self, rows: int, seconds: float) -> None:
        """A batch ran, well or not."""
        ...

    def rows_waiting(self, rows: int) -> None:
        """So many rows now stand in the queue."""
        ...

    def job_left_queue(self, seconds: float) -> None:
        """A job waited so long for its first row to run, or to fail before."""
        ...

    def request_went_through(self, stages_s: Mapping[str, float]) -> None:
        """A request that got its answer spent so many seconds in each stage."""
        ...

    def request_answered(self, status: int, seconds: float) -> None:
        """A request got this HTTP status so long after it arrived."""
        ...


def execute(
    engine: Engine,
    pieces: Sequence[Piece],
    observer: Observer,
    allowed_batch_sizes: Sequence[int] = (),
) -> float:
    """Run one batch and answer its jobs; returns the seconds the engine took.

    With `allowed_batch_sizes` (increasing, the last at least as large as the batch)
    the engine gets the next of them, and what it gives for the rows that fill it up
    is dropped. Whatever the engine raises becomes the jobs' answer and goes no
    further.
    """
    rows = sum(piece.stop - piece.start for piece in pieces)
    started_at = time.monotonic()
    for piece in pieces:
        piece.job.start(rows, started_at)
    outputs: Tensors = {}
    failure: Exception | None = None
    try:
        name = pieces[0].job.signature_name
        size = next((n for n in allowed_batch_sizes if n >= rows), rows)
        given = engine.run(_stack(pieces, size - rows), name)
        outputs = _checked(given, size, engine.signatures[name])
    except BasketError as error:
        failure = error
    except BaseException as error:  # a model may raise anything, SystemExit too
        _log.exception("the model failed on a batch of %d rows", rows)
        failure = ModelFailed(f"the model failed ({type(error).__name__})")
    finished_at = time.monotonic()
    # Before the answers: who has one finds its batch in the metrics.
    observer.batch_ran(rows, finished_at - started_at)
    _answer(pieces, outputs, failure, finished_at)
    return finished_at - started_at


def _stack(pieces: Sequence[Piece], padding: int) -> Tensors:
    """The pieces' rows under each other, then the last row `padding` times more.

    As in TensorFlow Serving, real rows fill a batch up: a model may fail on zeros.
    What is one piece without padding stays a view.
    """
    stacked = {}
    for name in pieces[0].job.inputs:
        parts = [job.inputs[name][start:stop] for job, start, stop in pieces]
        if padding:
            parts.append(np.repeat(parts[-1][-1:], padding, axis=0))
        stacked[name] = _under_each_other(parts) if len(parts) > 1 else parts[0]
    return stacked


def _under_each_other(parts: Sequence[Array]) -> Array:
    """The rows of all parts, which share dtype and row shape, in one array.

    bytes.join copies without letting go of the interpreter's lock. np.concatenate
    lets go for each part, and among many request threads the batching thread would
    wait for it again as often.
    """
    first = parts[0]
    if first.dtype.hasobject:
        return np.concatenate(parts)
    rows = sum(len(part) for part in parts)
    joined = b"".join([np.ascontiguousarray(part).data for part in parts])
    return np.frombuffer(joined, first.dtype).reshape(rows, *first.shape[1:])


def _answer(
    pieces: Sequence[Piece], outputs: Tensors, failure: Exception | None, now: float
) -> None:
    begin = 0
    for job, start, stop in pieces:
        if failure is not None:
            job.fail(failure)
            continue
        end = begin + stop - start
        job.add({name: array[begin:end] for name, array in outputs.items()}, now)
        begin = end


def _checked(outputs: Tensors, rows: int, signature: Signature) -> Tensors:
    """The outputs that the signature names, each with one row for each row in."""
    for spec in signature.outputs:
        array = outputs.get(spec.name)
        if array is None:
            raise ModelFailed(f"the model gave no output {spec.name!r}")
        given = len(array) if array.ndim else 0
        if given != rows:
            raise ModelFailed(
                f"the model gave {given} rows of {spec.name!r} for {rows} rows"
            )
    return {spec.name: outputs[spec.name] for spec in signature.outputs}
