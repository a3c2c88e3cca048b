"""Run pieces of jobs as one batch, and give each job its own rows back."""

import logging
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from app.engines.base import Engine, Signature, Tensors
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

    def request_answered(self, status: int, seconds: float) -> None:
        """A request got this HTTP status so long after it arrived."""
        ...


def execute(engine: Engine, pieces: Sequence[Piece], observer: Observer) -> float:
    """Run one batch and answer its jobs; returns the seconds the engine took.

    Whatever the engine raises becomes the jobs' answer and goes no further.
    """
    rows = sum(piece.stop - piece.start for piece in pieces)
    started_at = time.monotonic()
    for piece in pieces:
        piece.job.start(rows, started_at)
    outputs: Tensors = {}
    failure: Exception | None = None
    try:
        name = pieces[0].job.signature_name
        given = engine.run(_stack(pieces), name)
        outputs = _checked(given, rows, engine.signatures[name])
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


def _stack(pieces: Sequence[Piece]) -> Tensors:
    """The pieces' rows under each other; a view where there is one piece only."""
    if len(pieces) == 1:
        job, start, stop = pieces[0]
        return {name: array[start:stop] for name, array in job.inputs.items()}
    return {
        name: np.concatenate([job.inputs[name][a:b] for job, a, b in pieces])
        for name in pieces[0].job.inputs
    }


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
