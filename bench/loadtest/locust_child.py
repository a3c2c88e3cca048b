"""Locust in a process of its own: given a job, it comes back with samples."""

import csv
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, TypedDict

from bench.loadtest.measurement import Sample
from testing.server import ROOT

# A child that has been told to stop, or whose time is over, ends within this.
_ENDS_WITHIN_S = 30
_TICK_S = 0.25


class Job(TypedDict):
    """What `drive` does: see there. Times in seconds, `file` is for the CSV."""

    host: str
    user_class: str
    users: int
    warm_up_s: float
    measured_s: float
    file: str


class Outcome(NamedTuple):
    """The seconds that were measured, the answers, and what went wrong or None."""

    measured_s: float
    samples: list[Sample]
    problem: str | None


def drive(job: Job, stopped: threading.Event, tick: Callable[[], None]) -> Outcome:
    """Do `job`, calling `tick` now and then, until it is done or `stopped` is set."""
    command = [sys.executable, "-m", "bench.loadtest.drive"]
    with subprocess.Popen(  # noqa: S603
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C in the terminal is for the parent alone.
        start_new_session=True,
    ) as child:
        try:
            output, errors = _attend(child, job, stopped, tick)
        finally:
            child.kill()
    samples = _read(Path(job["file"]))
    if child.returncode == 0:
        answer = json.loads(output.splitlines()[-1])
        problem = answer["problem"] or _problem_of(samples)
        return Outcome(answer["measured_s"], samples, problem)
    last = (errors.strip().splitlines() or ["it said nothing"])[-1]
    return Outcome(0, samples, f"Locust ended with status {child.returncode}: {last}")


def _attend(
    child: subprocess.Popen[str],
    job: Job,
    stopped: threading.Event,
    tick: Callable[[], None],
) -> tuple[str, str]:
    """Its standard output and standard error, once it has ended."""
    over_at = time.monotonic() + job["warm_up_s"] + job["measured_s"] + _ENDS_WITHIN_S
    line: str | None = json.dumps(job) + "\n"
    while True:
        try:
            return child.communicate(line, timeout=_TICK_S)
        except subprocess.TimeoutExpired:
            line = None
            tick()
            if stopped.is_set():
                child.terminate()
                over_at = min(over_at, time.monotonic() + _ENDS_WITHIN_S)
            if time.monotonic() > over_at:
                child.kill()


def _read(file: Path) -> list[Sample]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        rows = csv.reader(lines)
        next(rows, None)
        return [
            Sample(float(at_s), float(response_s), int(status), int(batch_rows))
            for at_s, response_s, status, batch_rows in rows
        ]


def _problem_of(samples: Sequence[Sample]) -> str | None:
    if not samples:
        return "no request was answered while it was measured"
    failed = sum(sample.status != HTTPStatus.OK for sample in samples)
    return f"{failed} of {len(samples)} requests failed" if failed else None
