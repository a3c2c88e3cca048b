"""Run Locust for one cell, in a process of its own: `bench.loadtest.child`."""

import csv
import json
import subprocess
import sys
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TypedDict

from bench.loadtest.analysis import Sample
from testing.server import ROOT

# After the measurement: for Locust to start and to stop its users.
_EXTRA_S = 40


class Job(TypedDict):
    """What to do; times in seconds, `file` is for the CSV."""

    host: str
    user_class: str
    users: int
    warm_up_s: float
    measured_s: float
    file: str


def drive(job: Job) -> tuple[float, list[Sample], str | None]:
    """Run a job; return the measured seconds, the answers, and a problem or None."""
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "bench.loadtest.child"],
            cwd=ROOT,
            input=json.dumps(job),
            capture_output=True,
            text=True,
            check=True,
            timeout=job["warm_up_s"] + job["measured_s"] + _EXTRA_S,
            # Ctrl-C in the terminal is for the parent alone, which kills the child.
            start_new_session=True,
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no output"])[-1]
        return 0, [], f"Locust ended with status {error.returncode}: {last}"
    except subprocess.TimeoutExpired as error:
        return 0, [], f"Locust did not end within {error.timeout:.0f} s"
    answer = json.loads(ran.stdout.splitlines()[-1])
    with Path(job["file"]).open(newline="") as lines:
        samples = [
            Sample(float(row[0]), float(row[1]), int(row[2]), int(row[3]))
            for row in list(csv.reader(lines))[1:]
        ]
    return answer["measured_s"], samples, answer["problem"] or _problem(samples)


def _problem(samples: Sequence[Sample]) -> str | None:
    if not samples:
        return "no request was answered while it was measured"
    failed = sum(sample.status != HTTPStatus.OK for sample in samples)
    return f"{failed} of {len(samples)} requests failed" if failed else None
