"""The batcher in a process whose threads are greenlets."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from testing.server import ROOT

# Runs 4 request threads against one batching thread, all of them patched.
GEVENT = """
from gevent import monkey
monkey.patch_all()
import threading
from app.batching.batcher import Batcher
from app.batching.job_queue import JobQueue
from app.batching.release import FixedTimeout
from tests.support.engines import Echo
from tests.support.jobs import Notes, answered, executor, job

assert issubclass(JobQueue, monkey.get_original("queue", "Queue"))
batcher = Batcher(executor(Echo(), 4), FixedTimeout(0), 16, Notes())
batcher.start()
answers = []

def request(thread):
    for number in range(5):
        one = job(10 * thread + number)
        batcher.submit(one)
        answers.extend(answered(one))

threads = [threading.Thread(target=request, args=[number]) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
batcher.close(10)
print(sorted(answers))
"""


@pytest.mark.skipif(find_spec("gevent") is None, reason="gevent is not installed")
def test_gevent_monkey_patching_keeps_the_standard_library_queue():
    """After monkey patching JobQueue is no gevent queue, and requests are answered."""
    program = [sys.executable, "-c", GEVENT]
    ran = subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True)
    answers = [float(10 * thread + n) for thread in range(4) for n in range(5)]
    assert ran.stdout == f"{answers}\n"
