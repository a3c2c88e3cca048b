"""Shadow traffic: copies of answered requests run on another version of the model.

Copies give way to clients. They are made after the response was sent, run only while
nothing else does and in a hundredth of the time, and are dropped where they would have
to wait for long.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from app import unbuffered_metrics
from app.api.recording.differences import agreeing_rows
from app.api.recording.spare_time import SpareTime
from app.background import Background, Bounds
from app.batching.job import Job
from app.capture.captured import Captured, Group, grouped
from app.engines.base import Signature, Tensors
from app.errors import (
    Abandoned,
    BadInput,
    CannotMeetDeadline,
    NotReady,
    QueueFull,
    Stopping,
    UnknownModel,
)
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.repository.served import ServedModel

_log = logging.getLogger(__name__)
# A response is written in the step of the event loop, or by the thread, that makes the
# copy; another thread gets Python's lock 5 ms later. Copies of 10 ms make one batch.
_LINGER_S = 0.01
_MAX_COPIES, _MAX_BYTES = 1024, 32 << 20
# Never before the linger time, however many there are.
_BOUNDS = Bounds(_LINGER_S, _MAX_COPIES + 1, _MAX_BYTES + 1, _MAX_COPIES, _MAX_BYTES)
# What becomes of a row.
AGREE, DIFFER, FAILED, DROPPED = "agree", "differ", "failed", "dropped"
# The name of copies in fair queueing; no client has it.
_CLIENT = "shadow"


class Copy(NamedTuple):
    """A request that `model` has answered, for the version of a label.

    It has `rows` in all, and takes about `size` bytes.
    """

    model: ServedModel
    label: str
    rows: int
    size: int
    request: Captured | Callable[[], Sequence[Captured]]

    def requests(self) -> Sequence[Captured]:
        """Return its rows by shape."""
        made = self.request
        return [made] if isinstance(made, Captured) else made()


class Shadow:
    """Runs copies of all models in a thread of its own; one for each process."""

    def __init__(
        self,
        catalog: Catalog,
        timeout_s: float,
        count: Callable[[str, int, str, int], None] = unbuffered_metrics.shadow_rows,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Store the parts; the thread starts with the first copy.

        A batch of copies may take `timeout_s`. `count` gets a model, the version that
        copies are for, what became of rows, and how many. A test replaces the clock.
        """
        self._catalog = catalog
        self._timeout_s = timeout_s
        self._count = count
        self._closing = False
        self.spare_time = SpareTime(lambda: self._closing, clock, sleep)
        # Models and versions that copies did not fit.
        self._unfit: set[tuple[str, int]] = set()
        self._background = Background("shadow", self._run_and_rest, _BOUNDS)

    def copy(self, copy: Copy) -> None:
        """Have a copy run, or drop it; any thread may call this."""
        if not self._background.offer(copy, copy.size):
            self._drop(copy)

    def close(self) -> None:
        """Drop all copies, without waiting for a batch of them that runs."""
        self._closing = True
        self._background.close(0)

    def run(self, copies: Sequence[Copy]) -> None:
        """Run copies, and count how the answers compare; raise nothing."""
        by_origin: dict[tuple[int, str], list[Copy]] = {}
        for each in copies:
            by_origin.setdefault((id(each.model), each.label), []).append(each)
        for same in by_origin.values():
            model, label, *_ = same[0]
            try:
                requests = [found for each in same for found in each.requests()]
                lease = self._catalog.lease(Target(model.name, label=label))
                with lease as shadow:
                    if shadow.version != model.version:
                        self._run_on(shadow, model, requests)
            except (BadInput, NotReady, UnknownModel):
                # There is no such label any more, or its version is not loaded.
                continue
            except Exception:  # must not end the thread
                _log.exception("model %s: copies of requests can't be run", model.name)

    def _run_and_rest(self, copies: list[Copy]) -> None:
        self.run(copies)
        # A version that is unloaded in a rest is freed.
        copies.clear()
        self.spare_time.rest()

    def _run_on(
        self, shadow: ServedModel, model: ServedModel, requests: Sequence[Captured]
    ) -> None:
        for group in grouped(requests):
            signature = shadow.signatures.get(group.signature_name)
            if signature is None or not _fits(group.inputs, signature):
                self._log_unfit(shadow, model)
                self._count(shadow.name, shadow.version, FAILED, _rows(group.inputs))
                continue
            for batch in _batches(group, signature, shadow):
                for result, rows in self._results(shadow, model, batch).items():
                    if rows:
                        self._count(shadow.name, shadow.version, result, rows)

    def _results(
        self, shadow: ServedModel, model: ServedModel, batch: Group
    ) -> dict[str, int]:
        """Run one batch, and return what becomes of how many rows."""
        rows = _rows(batch.inputs)
        runners = shadow.runner, model.runner
        if not self.spare_time.wait_for_idle(shadow.name, runners):
            return {DROPPED: rows}
        try:
            with self.spare_time.taken():
                outputs = self._outputs(shadow, batch)
            agreeing = int(agreeing_rows(batch.outputs, outputs).sum())
        except (Abandoned, CannotMeetDeadline, QueueFull, Stopping):
            return {DROPPED: rows}
        except Exception:
            # If the model failed, its log has the reason.
            _log.debug("copies failed", exc_info=True)
            return {FAILED: rows}
        return {AGREE: agreeing, DIFFER: rows - agreeing}

    def _outputs(self, shadow: ServedModel, group: Group) -> Tensors:
        """Return the version's outputs for the rows, or raise what `Job.wait` does."""
        job = Job(
            group.inputs,
            time.monotonic() + self._timeout_s,
            lambda: self._closing,
            group.signature_name,
            _CLIENT,
        )
        job.is_copy = True
        shadow.runner.submit(job)
        answer = job.wait()
        self.spare_time.expect(shadow.name, answer.infer_s)
        return answer.outputs

    def _drop(self, copy: Copy) -> None:
        model = copy.model
        with suppress(UnknownModel):
            version = self._catalog.routes(model.name)[0].labels.get(copy.label)
            if version not in (None, model.version):
                self._count(model.name, version, DROPPED, copy.rows)

    def _log_unfit(self, shadow: ServedModel, model: ServedModel) -> None:
        key = shadow.name, shadow.version
        if key not in self._unfit:
            self._unfit.add(key)
            _log.error(
                "model %s version %d can't run copies of requests to version %d: its "
                "inputs are others",
                *(*key, model.version),
            )


def _rows(tensors: Tensors) -> int:
    return len(next(iter(tensors.values())))


def _fits(inputs: Tensors, signature: Signature) -> bool:
    """Return whether a signature takes rows as another version has taken them."""
    specs = {spec.name: spec for spec in signature.inputs}
    return specs.keys() == inputs.keys() and all(
        array.dtype == specs[name].dtype and specs[name].accepts(array.shape[1:])
        for name, array in inputs.items()
    )


def _batches(
    group: Group, signature: Signature, shadow: ServedModel
) -> Iterator[Group]:
    """Yield a group's rows in single batches, so that clients wait for one at most."""
    (size,) = signature.batch_sizes((shadow.config.settings.max_batch_size,))
    for start in range(0, _rows(group.inputs), size):
        inputs, outputs = (
            {name: array[start : start + size] for name, array in tensors.items()}
            for tensors in (group.inputs, group.outputs)
        )
        yield Group(group.signature_name, group.form, {}, inputs, outputs)
