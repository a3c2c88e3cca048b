"""Files that the processes of a server share: values, counts and metrics."""

import multiprocessing
import os
import signal
import subprocess
import sys

from prometheus_client.multiprocess import mark_process_dead

from app.promotion.evidence import Evidence
from app.run_dir.json_files import JsonFiles
from testing.server import ROOT


def _add_many(folder, times):
    files = JsonFiles(folder)
    for _ in range(times):
        with files.locked("m"):
            files.set("m", files.get("m") + 1)


def test_processes_change_a_value_one_at_a_time(tmp_path):
    """No change is lost."""
    JsonFiles(tmp_path).set("m", 0)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_add_many, args=(tmp_path, 200)) for _ in range(2)]
    for each in others:
        each.start()
    for each in others:
        each.join()
        assert each.exitcode == 0
    assert JsonFiles(tmp_path).get("m") == 400


ENDLESS = """
import sys
from pathlib import Path
from app.promotion.evidence import Evidence
evidence = Evidence(Path(sys.argv[1]))
number = 0
while True:
    evidence.count("m", 0, True, 500, 0.01, False)
    number += 1
    if number == 1000:
        print("counts", flush=True)
"""


def test_counts_of_a_process_killed_while_counting_are_kept(tmp_path):
    """A worker that is ended with SIGKILL leaves its counts to the others."""
    command = [sys.executable, "-c", ENDLESS, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout.readline() == b"counts\n"
        process.send_signal(signal.SIGKILL)
    evidence = Evidence(tmp_path)
    before = evidence.read("m").side(0, 0, is_candidate=True)
    assert before.requests >= 1000
    # Killed between two steps of one request.
    assert 0 <= before.errors.hits - before.requests <= 1
    evidence.count("m", 0, True, 200, 0.01, False)
    after = evidence.read("m").side(0, 0, is_candidate=True)
    assert after.requests == before.requests + 1


FULL = """
import logging, resource, signal, sys
from pathlib import Path
from app.promotion.evidence import Evidence
logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stdout)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
evidence = Evidence(Path(sys.argv[1]))
for _ in range(3):
    evidence.count("digits", 0, True, 200, 0.01, False)
print(evidence.read("digits").side(0, 0, is_candidate=True).requests)
"""


def test_no_space_for_a_file_of_counts_leaves_them_in_memory(tmp_path):
    """Where the file can't be as large as it has to be, requests are still counted."""
    command = [sys.executable, "-c", FULL, tmp_path]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, text=True, check=True)
    warning, requests = done.stdout.splitlines()
    assert "can't be written" in warning
    assert requests == "3"
    assert not list(tmp_path.iterdir())


def show_gauges(folder, waiting, ceiling):
    """Run a process that sets two gauges; return its id and its lines of /metrics."""
    program = f"""
from app.telemetry import ModelMetrics, exposition
metrics = ModelMetrics("m", "1")
metrics.rows_waiting({waiting})
metrics.batch_limited({ceiling})
print(exposition({{}}, "")[0].decode())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = process.communicate()[0].splitlines()
    return process.pid, sorted(line for line in lines if line.startswith("basket_"))


def test_gauges_are_combined_over_live_processes(tmp_path):
    """Queue rows are summed, the ceiling is the minimum, and dead ones do not count."""
    dead, _ = show_gauges(tmp_path, waiting=100, ceiling=1)
    show_gauges(tmp_path, waiting=2, ceiling=8)
    mark_process_dead(dead, str(tmp_path))
    _, lines = show_gauges(tmp_path, waiting=3, ceiling=16)
    gauges = [line for line in lines if "_queue_rows" in line or "_ceiling" in line]
    assert gauges == [
        'basket_batch_ceiling_rows{model="m",version="1"} 8.0',
        'basket_queue_rows{model="m",version="1"} 5.0',
    ]
