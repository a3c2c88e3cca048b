"""A Runner in a web worker, whose jobs run in model processes."""

import threading
import time
from functools import partial

from app.batching.job import Job
from app.errors import BasketError, ModelProcessGone, Stopping
from app.shared_model import error_json
from app.shared_model.channel import DIED, Channel
from app.shared_model.frames import Frame


class RemoteRunner:
    """One version's Runner: each job goes to the model process with the fewest rows."""

    runs_in_submit = False

    def __init__(self, name: str, version: int) -> None:
        """Store the version; `add` says which model processes serve it."""
        self._version = [name, version]
        self._channels: set[Channel] = set()
        # Jobs under way by channel; no channel has 0.
        self._under_way: dict[Channel, int] = {}
        self._closed = False
        self._changed = threading.Condition()

    def start(self) -> None:
        """Do nothing; a Runner needs the method."""

    def add(self, channel: Channel) -> None:
        """Start to send jobs to a model process."""
        with self._changed:
            self._channels.add(channel)

    def leave(self, channel: Channel) -> None:
        """Send no more jobs to a model process."""
        with self._changed:
            self._channels.discard(channel)

    def remove(self, channel: Channel, timeout_s: float) -> None:
        """Send no more jobs to a model process, and wait for those under way."""
        self.leave(channel)
        with self._changed:
            self._changed.wait_for(lambda: channel not in self._under_way, timeout_s)

    def channels(self) -> set[Channel]:
        """Return the channels to the model processes that get jobs."""
        with self._changed:
            return self._channels.copy()

    def submit(self, job: Job) -> None:
        """Send a job to a model process, whose runner may refuse it later.

        Raises:
            ModelProcessGone: no model process serves the version.
            Stopping: the runner is closed.
        """
        channel = self._choose()
        meta = {
            "predict": self._version,
            "signature": job.signature_name,
            "deadline": job.deadline,
            "client": job.client,
            "reserve_s": job.reserve_s,
            "traceparent": job.traceparent,
        }
        try:
            number = channel.call(_JobCall(job, self, channel), meta, job.inputs)
        except Exception:
            self.done(channel)
            raise
        job.on_abandoned = partial(channel.cancel, number)
        # Checked afterwards: else a client that goes meanwhile could be missed.
        if job.is_abandoned or job.is_answered():
            job.on_abandoned()

    def is_idle(self) -> bool:
        """Return whether this worker has no job under way, nor a model process rows.

        Rows of other web workers and of other models count, once they have arrived in a
        model process.
        """
        with self._changed:
            has_rows = any(
                each.rows() for each in self._channels if not each.is_closed()
            )
            return not self._under_way and not has_rows

    def stuck_s(self) -> float:
        """Return 0: a model process finds its own stuck models."""
        return 0.0

    def close(self, timeout_s: float) -> None:
        """Refuse new jobs, and wait for those under way."""
        give_up_at = time.monotonic() + timeout_s
        with self._changed:
            self._closed = True
        for channel in self.channels():
            self.remove(channel, max(give_up_at - time.monotonic(), 0))

    def done(self, channel: Channel) -> None:
        """Count a job that has its reply, or an error."""
        with self._changed:
            self._under_way[channel] -= 1
            if not self._under_way[channel]:
                del self._under_way[channel]
                self._changed.notify_all()

    def _choose(self) -> Channel:
        with self._changed:
            if self._closed:
                raise Stopping("the server is stopping")
            if not self._channels:
                raise ModelProcessGone(DIED)
            # A dead process's channel stays for a while, and its row count is frozen.
            channel = min(
                self._channels, key=lambda each: (each.is_closed(), each.rows())
            )
            self._under_way[channel] = self._under_way.get(channel, 0) + 1
            return channel


class _JobCall:
    """The Call of a job."""

    __slots__ = ("_channel", "_job", "_runner")

    def __init__(self, job: Job, runner: RemoteRunner, channel: Channel) -> None:
        self._job = job
        self._runner = runner
        self._channel = channel

    def take_reply(self, frame: Frame) -> Job | None:
        job, meta = self._job, frame.meta
        if "error" in meta:
            job.was_refused = "refused" in meta
            self.fail(error_json.from_json(meta))
            return None
        # The monotonic clock is the same in all processes of a machine.
        (started_at, finished_at), batch_rows = meta["times"], meta["batch_rows"]
        self._runner.done(self._channel)
        job.started_at = started_at
        return job if job.succeed(frame.tensors, batch_rows, finished_at) else None

    def fail(self, error: BasketError) -> None:
        self._runner.done(self._channel)
        self._job.fail(error)
