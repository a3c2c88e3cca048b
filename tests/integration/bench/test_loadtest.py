"""`make loadtest` as a process: report, exit status, signals."""

import contextlib
import csv
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app.capture.blocks import encode
from app.capture.captured import Captured, grouped
from testing.server import ROOT


@contextlib.contextmanager
def loadtest(*arguments):
    """A running load test, marked so that what it leaves behind can be found."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.loadtest", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "LOADTEST_MARK": f"test-{os.getpid()}"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def descendants():
    """Processes that carry the mark of this test, by their environment."""
    mark = f"LOADTEST_MARK=test-{os.getpid()}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes())
    return found


def test_small_campaign_writes_a_report(tmp_path):
    """Two loads on one set-up give two rows, their raw answers, and exit status 0."""
    out = tmp_path / "report"
    with loadtest(
        "--setup=batching, auto",
        *("--users=1,3", "--seconds=2.5", "--warm-up=1", "--device-ms=10"),
        f"--out={out}",
    ) as process:
        output, _ = process.communicate(timeout=110)
    assert process.returncode == 0, output
    said = r"\[2/2\] simulated-10-ms, batching, auto, 3 thinking clients: \d"
    assert re.search(said, output)
    assert descendants() == []
    assert (out / "report.html").exists()
    assert "| batching, auto | 3 |" in (out / "report.md").read_text()
    for users in (1, 3):
        file = out / "raw" / f"batching-auto-{users}-users.csv"
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert rows
        assert {row["status"] for row in rows} == {"200"}
        assert all(0.01 <= float(row["response_s"]) < 2.5 for row in rows)


def test_captured_requests_are_sent(tmp_path):
    """Those that fit the model measure it; others are a problem of the set-up."""
    for size, status in ((64, 0), (3, 1)):
        inputs = {"input": np.zeros((2, size), np.float32)}
        about = ("rows", 2, 1e9, "id", 1, 1, 0.01)
        group = grouped([Captured("serving_default", inputs, inputs, *about)])
        file = tmp_path / f"{size}.npz"
        file.write_bytes(encode(group))
        with loadtest(
            *("--setup=batching, auto", "--device-ms=10", f"--captured={file}"),
            *("--users=3", "--seconds=3", "--warm-up=1"),
            f"--out={tmp_path / str(size)}",
        ) as process:
            output, _ = process.communicate(timeout=110)
        assert process.returncode == status, output


def test_server_that_is_not_ready_in_time_is_a_row_with_a_problem(tmp_path):
    """A server that is not ready in time is a row with a problem, and exit status 1."""
    out = tmp_path / "report"
    with loadtest(
        *("--setup=naive", "--users=1,2", "--ready-within=0.05", f"--out={out}")
    ) as process:
        output, _ = process.communicate(timeout=110)
    assert process.returncode == 1, output
    assert output.count("not within 0.05 s") == 2
    assert "not within 0.05 s" in (out / "report.md").read_text()
    assert descendants() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_keeps_measured_cells_and_stops_all_processes(tmp_path, number):
    """A signal in the second cell leaves a report of the first and no process."""
    out = tmp_path / "report"
    with loadtest(
        "--setup=naive",
        *("--users=1,2,3", "--seconds=2.5", "--warm-up=3", "--device-ms=10"),
        f"--out={out}",
    ) as process:
        for line in process.stdout:
            if line.startswith("[2/3]"):
                break
        process.send_signal(number)
        output, _ = process.communicate(timeout=110)
    assert process.returncode == 130, output
    assert descendants() == []
    table = (out / "report.md").read_text()
    assert "| naive | 1 |" in table
    assert "| naive | 3 |" not in table
    assert (out / "report.html").exists()


def test_unknown_model_ends_with_one_line():
    """An unknown model ends the command with status 2 and how to make it."""
    with loadtest("--model=no-such-model") as process:
        output, _ = process.communicate(timeout=55)
    assert process.returncode == 2
    (line,) = output.splitlines()
    assert "no model no-such-model in" in line
    assert "save one as no-such-model/1/model.keras" in line
