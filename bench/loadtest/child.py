"""Locust as a library, for one cell: `python -m bench.loadtest.child`.

Standard input has a `bench.loadtest.drive.Job` as JSON. Each answer is written to a CSV
file; standard output gets a line of JSON: the measured seconds, and a problem or null.
"""

import csv
import json
import sys
import time
from pathlib import Path
from typing import Any

# First, because importing Locust makes the standard library cooperative.
import locustfile  # isort: skip

import gevent
from locust.env import Environment

from bench.loadtest.analysis import Sample
from bench.loadtest.payload import PayloadError


def main() -> None:
    """Do the job on standard input."""
    job = json.loads(sys.stdin.readline())
    samples: list[Sample] = []
    began_at: float | None = None
    measured_s, problem = 0.0, None

    def on_request(response_time: float, response: Any, **_: Any) -> None:
        """Keep an answer; `response_time` is in milliseconds."""
        if began_at is not None:
            at_s = time.perf_counter() - began_at
            rows = int((response.headers or {}).get("X-Batch-Size", 0))
            status = int(response.status_code or 0)
            samples.append(Sample(at_s, response_time / 1000, status, rows))

    user_class = getattr(locustfile, job["user_class"])
    environment = Environment(user_classes=[user_class], host=job["host"])
    try:
        locustfile.aim(environment)
        environment.events.request.add_listener(on_request)
        runner = environment.create_local_runner()
        # At most 100 per second; each user begins with a think time.
        runner.start(job["users"], spawn_rate=min(job["users"], 100))
        gevent.sleep(job["warm_up_s"])
        began_at = time.perf_counter()
        gevent.sleep(job["measured_s"])
        measured_s, began_at = time.perf_counter() - began_at, None
        runner.quit()
    except PayloadError as error:
        problem = str(error)
    with Path(job["file"]).open("w", newline="") as output:
        writer = csv.writer(output, lineterminator="\n")
        writer.writerow(Sample._fields)
        for at_s, response_s, status, rows in samples:
            writer.writerow((f"{at_s:.4f}", f"{response_s:.4f}", status, rows))
    print(json.dumps({"measured_s": measured_s, "problem": problem}))


if __name__ == "__main__":
    main()
