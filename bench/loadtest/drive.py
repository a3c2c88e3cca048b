"""One cell's load: Locust as a library, in a process of its own.

Run by `run` with a line of JSON on its standard input, which says what to do. It
writes each answer into a CSV file, and at the end one line of JSON to its standard
output: the seconds measured, and a problem or null.
"""

import csv
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

# First of all, because importing Locust makes the standard library cooperative.
import locustfile  # isort: skip

import gevent
import gevent.event
from locust.env import Environment

from bench.loadtest.measurement import Sample
from bench.loadtest.payload import PayloadError


class Recorder:
    """Keeps what is answered from `begin` to `end`."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.measured_s = 0.0
        self._began_at: float | None = None

    def begin(self) -> None:
        """The warm-up is over."""
        self._began_at = time.perf_counter()

    def end(self) -> None:
        """No answer counts from now on."""
        if self._began_at is not None:
            self.measured_s = time.perf_counter() - self._began_at
            self._began_at = None

    def on_request(self, response_time: float, response: Any, **_: Any) -> None:
        """Locust's event for each request; `response_time` is in milliseconds."""
        if self._began_at is None:
            return
        at_s = time.perf_counter() - self._began_at
        status = int(response.status_code or 0)
        headers = response.headers or {}
        rows = int(headers.get("X-Batch-Size", 0))
        self.samples.append(Sample(at_s, response_time / 1000, status, rows))

    def write(self, file: Path) -> None:
        """Write the samples as CSV."""
        with file.open("w", newline="") as output:
            writer = csv.writer(output, lineterminator="\n")
            writer.writerow(Sample._fields)
            for at_s, response_s, status, rows in self.samples:
                writer.writerow((f"{at_s:.4f}", f"{response_s:.4f}", status, rows))


def main() -> None:
    """Do what standard input says."""
    job = json.loads(sys.stdin.readline())
    stopped = gevent.event.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, stopped.set)
    recorder = Recorder()
    problem = None
    try:
        _drive(job, recorder, stopped)
    except PayloadError as error:
        problem = str(error)
    recorder.write(Path(job["file"]))
    print(json.dumps({"measured_s": recorder.measured_s, "problem": problem}))


def _drive(
    job: dict[str, Any], recorder: Recorder, stopped: gevent.event.Event
) -> None:
    environment = Environment(
        user_classes=[getattr(locustfile, job["user_class"])], host=job["host"]
    )
    locustfile.aim(environment)
    environment.events.request.add_listener(recorder.on_request)
    runner = environment.create_local_runner()
    # At most 100 a second; each user begins with a think time.
    runner.start(job["users"], spawn_rate=min(job["users"], 100))
    if not stopped.wait(job["warm_up_s"]):
        recorder.begin()
        stopped.wait(job["measured_s"])
        recorder.end()
    runner.quit()


if __name__ == "__main__":
    main()
