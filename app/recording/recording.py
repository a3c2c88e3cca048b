"""What is kept of calls beside the metrics: captured ones, and the request log."""

import random
import time
from collections.abc import Callable, Sequence
from functools import cache, partial

from app import telemetry, unbuffered_metrics
from app.call import Call
from app.capture.captured import ROWS, WHOLE, Captured
from app.capture.recorder import DROPPED, Recorder, Sample
from app.capture.request_log import Entry, RequestLog
from app.codec.uneven import Uneven
from app.recording.samples import bytes_of, of_groups, of_instances, owned
from app.settings import Settings
from app.settings.model_config import CaptureConfig
from app.totals import STAGES

_MB = 1_000_000
_LONGEST_NAME = 128
# A sample that nobody could predict, but no secret.
_chance = random.Random()  # noqa: S311


def sampled(
    capture: CaptureConfig, chance: random.Random = _chance
) -> CaptureConfig | None:
    """Return how one call is captured; None: it is not in the sample."""
    return capture if chance.random() < capture.share else None


class Recording:
    """Hands calls to the threads that write them; any thread may call it."""

    def __init__(self, settings: Settings, chance: random.Random = _chance) -> None:
        """Start no thread yet; `chance` samples the request log."""
        self._chance = chance
        self._recorder = self._log = None
        if settings.capture_dir is not None:
            self._recorder = Recorder(settings.capture_dir, _count)
        if settings.request_log is not None:
            self._log = RequestLog(
                settings.request_log, unbuffered_metrics.request_log_dropped
            )
        self._log_share = settings.request_log_share

    def ended(self, calls: Sequence[Call]) -> None:
        """Log calls, and capture those answered, that are in the samples."""
        if self._recorder is not None:
            for call in [each for each in calls if each.capture is not None]:
                self._capture(call, self._recorder)
        if self._log is not None:
            for call in calls:
                if self._chance.random() < self._log_share:
                    self._log.add(_entry_of(call))

    def close(self, timeout_s: float) -> None:
        """Write what waits to be written; may be called twice."""
        for each in (self._recorder, self._log):
            if each is not None:
                each.close(timeout_s)

    def _capture(self, call: Call, recorder: Recorder) -> None:
        name = call.model.name
        if call.stages_s is None or not recorder.takes(name):
            return
        request, size = _captured(call)
        recorder.record(Sample(name, call.capture.keep_mb * _MB, size, request))


def _entry_of(call: Call) -> Entry:
    model, job, stages_s = call.model, call.job, call.stages_s
    # Never a key, which is a secret.
    client = call.header("x-client-id") or call.peer.client
    return Entry(
        time.time(),
        call.request_id,
        client[:_LONGEST_NAME],
        model.name if model else None,
        model.version if model else None,
        call.status,
        job.rows if job else None,
        call.ended_at - call.arrived_at,
        None if stages_s is None else dict(zip(STAGES, stages_s, strict=True)),
    )


def _count(model: str, result: str, number: int) -> None:
    if result == DROPPED:
        # One by one, and under load nearly all requests: too many to write at once.
        telemetry.record(_drops(model), number)
    else:
        unbuffered_metrics.captured(model, result, number)


@cache
def _drops(model: str) -> Callable[[list[int]], None]:
    return lambda numbers: unbuffered_metrics.captured(model, DROPPED, sum(numbers))


def _captured(
    call: Call,
) -> tuple[Captured | Callable[[], Sequence[Captured]], int]:
    """Return what is written of a call, and about how many bytes that is."""
    model, job, decoded = call.model, call.job, call.decoded
    about = (
        job.rows,
        time.time(),
        call.request_id,
        model.version,
        job.batch_rows,
        call.ended_at - call.arrived_at,
    )
    name, body = decoded.signature_name, call.reply.body
    if not model.has_tensors:
        instances = call.instances or []
        size = len(body) + sum(map(len, instances))
        return partial(of_instances, instances, body, about), size
    outputs, size = owned(job.outputs)
    form = WHOLE if model.signatures[name].takes_whole_tensors else ROWS
    if isinstance(decoded.inputs, Uneven):
        size += sum(map(bytes_of, decoded.inputs.groups))
        return partial(of_groups, name, decoded.inputs, outputs, form, about), size
    size += bytes_of(job.inputs)
    return Captured(name, job.inputs, outputs, form, *about), size
