"""The metrics' listener: what is counted of each call at its end."""

from collections.abc import Sequence

from app import telemetry
from app.call import Call


def count_calls(calls: Sequence[Call]) -> None:
    """Record calls that have ended, whether or not they failed."""
    telemetry.record_all(
        [
            (
                telemetry.write_calls_without_model
                if call.model is None
                else call.model.observer.write_calls,
                (
                    call.status,
                    call.ended_at - call.arrived_at,
                    call.stages_s[1] if call.stages_s else _queue_s(call),
                    call.stages_s,
                    call.traceparent,
                ),
            )
            for call in calls
        ]
    )


def _queue_s(call: Call) -> float | None:
    """Return how long a failed call's job was in a queue, None if it was in none."""
    job = call.job
    return None if job is None or job.was_refused else job.queue_s()
