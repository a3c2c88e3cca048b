"""A Runner in a web worker, whose jobs run in model processes."""

import threading
import time
from collections.abc import Callable

from app.batching.job import Job
from app.errors import BasketError, ModelProcessGone, Stopping
from app.shared_model import failures
from app.shared_model.channel import GONE, Channel
from app.shared_model.frames import Frame


class RemoteRunner:
    """One version's Runner: its jobs go to the model process with the least rows."""

    runs_in_submit = False

    def __init__(self, name: str, version: int) -> None:
        """Store whose jobs these are; `add` says where they can go."""
        self._asked_for = [name, version]
        self._channels: set[Channel] = set()
        # Jobs under way on each channel where there are any, those given up too.
        self._under_way: dict[Channel, int] = {}
        self._closed = False
        self._changed = threading.Condition()

    def start(self) -> None:
        """Nothing to start."""

    def add(self, channel: Channel) -> None:
        """Send jobs there too."""
        with self._changed:
            self._channels.add(channel)

    def leave(self, channel: Channel) -> None:
        """Send no more jobs there."""
        with self._changed:
            self._channels.discard(channel)

    def remove(self, channel: Channel, timeout_s: float) -> None:
        """Send no more jobs there, and wait for those that are under way."""
        self.leave(channel)
        with self._changed:
            self._changed.wait_for(lambda: channel not in self._under_way, timeout_s)

    def channels(self) -> set[Channel]:
        """Where jobs can go."""
        with self._changed:
            return self._channels.copy()

    def submit(self, job: Job) -> None:
        """Send the job on its way.

        What the model process's own runner refuses it with is the job's answer.

        Raises:
            ModelProcessGone: there is no model process.
            Stopping: closed.
        """
        channel = self._choose()
        question = _Remote(job, self, channel)
        asked = {
            "predict": self._asked_for,
            "signature": job.signature_name,
            "deadline": job.deadline,
            "client": job.client,
            "reserve_s": job.reserve_s,
        }
        try:
            channel.ask(question, asked, job.inputs)
        except Exception:
            self.done(channel)
            raise

    def stuck_s(self) -> float:
        """Never: the model process looks after itself."""
        return 0.0

    def close(self, timeout_s: float) -> None:
        """Let no more jobs in, and wait for those that are under way."""
        give_up_at = time.monotonic() + timeout_s
        with self._changed:
            self._closed = True
        for channel in self.channels():
            self.remove(channel, max(give_up_at - time.monotonic(), 0))

    def done(self, channel: Channel) -> None:
        """A job is no longer under way there."""
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
                raise ModelProcessGone(GONE)
            # A dead process's number stands still, and it may be here for a while.
            channel = min(
                self._channels, key=lambda each: (each.has_ended(), each.rows())
            )
            self._under_way[channel] = self._under_way.get(channel, 0) + 1
            return channel


class _Remote:
    """A job in a model process; a Question."""

    __slots__ = ("_channel", "_job", "_runner", "is_gone")

    is_gone: Callable[[], bool]

    def __init__(self, job: Job, runner: RemoteRunner, channel: Channel) -> None:
        self._job = job
        self._runner = runner
        self._channel = channel
        self.is_gone = job.is_disconnected

    def answer(self, frame: Frame) -> Job | None:
        job, meta = self._job, frame.meta
        if "error" in meta:
            job.was_refused = "refused" in meta
            self.fail(failures.rebuild(meta))
            return None
        # One clock for all processes of a machine.
        started_at, finished_at = meta["times"]
        job.start(started_at)
        is_last = job.add(0, frame.tensors, meta["batch_rows"], finished_at)
        self._runner.done(self._channel)
        return job if is_last else None

    def fail(self, error: BasketError) -> None:
        self._runner.done(self._channel)
        self._job.fail(error)
