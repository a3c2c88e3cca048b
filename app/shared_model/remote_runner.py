"""A Runner in a web worker, whose jobs run in model processes."""

import threading
from functools import partial

from app.batching.job import Job
from app.errors import BasketError, ModelProcessGone
from app.shared_model.channel import DIED, Channel, next_number
from app.shared_model.frames import Frame, encode
from app.shared_model.json_values import error_from_json


class RemoteRunner:
    """One version's Runner: each job goes to the model process with the fewest rows."""

    runs_in_submit = False

    def __init__(self, name: str, version: int) -> None:
        """Store the version; `set_channels` says which model processes serve it."""
        self._version = (name, version)
        self._channels: frozenset[Channel] = frozenset()
        # Reentrant: the job of a dead process fails within, and wakes its waiter.
        self._submitting = threading.RLock()

    def start(self) -> None:
        """Do nothing; a Runner needs the method."""

    def set_channels(self, channels: frozenset[Channel]) -> None:
        """Send jobs to these model processes only, from the return of this call on."""
        with self._submitting:
            self._channels = channels

    def submit(self, job: Job) -> None:
        """Send a job to a model process, whose runner may refuse it later.

        Raises:
            ModelProcessGone: no model process serves the version.
            TypeError: an array of strings holds a value that is not bytes.
        """
        number = next_number()
        meta = {
            "number": number,
            "predict": self._version,
            "signature": job.signature_name,
            "deadline": job.deadline,
            "client": job.client,
            "reserve_s": job.reserve_s,
            "traceparent": job.traceparent,
        }
        frame = encode(Frame(meta, job.inputs))
        # Held until it is sent: no call follows `set_channels` on a channel left out.
        with self._submitting:
            if not self._channels:
                raise ModelProcessGone(DIED)
            channel = min(self._channels, key=_load)
            channel.call(number, frame, partial(take_reply, job))
        job.on_abandoned = partial(channel.cancel, number)
        # Checked afterwards: else a client that goes meanwhile could be missed.
        if job.is_abandoned or job.is_answered():
            job.on_abandoned()

    def is_idle(self) -> bool:
        """Return whether no call is under way here, nor rows in a model process.

        Rows of other web workers and of other models count, once they have arrived in a
        model process.
        """
        return all(channel.is_idle() for channel in self._channels)

    def stuck_s(self) -> float:
        """Return 0: a model process finds its own stuck models."""
        return 0.0

    def close(self, timeout_s: float) -> None:
        """Do nothing: the calls under way are those of a Channel."""


def _load(channel: Channel) -> tuple[bool, int]:
    # A dead process's channel stays for a while, and its row count is frozen.
    return channel.is_closed(), channel.rows()


def take_reply(job: Job, reply: Frame | BasketError) -> Job | None:
    """Answer a job; return it if its waiter is to be notified."""
    if isinstance(reply, BasketError):
        job.fail(reply)
        return None
    meta = reply.meta
    if "error" in meta:
        job.was_refused = "refused" in meta
        job.fail(error_from_json(meta))
        return None
    # The monotonic clock is the same in all processes of a machine.
    job.started_at, finished_at = meta["times"]
    return job if job.succeed(reply.tensors, meta["batch_rows"], finished_at) else None
