"""The CPU time and the descriptors of a server's processes."""

import asyncio
import os
import subprocess
import sys
import time

from bench.reliability.server import Held
from testing.processes import cpu_s


def test_cpu_time_of_an_ended_child_counts_for_its_parent():
    """A process has its own CPU time, and that of children that have ended."""
    before_s = cpu_s([os.getpid()])
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert cpu_s([os.getpid()]) >= before_s + 0.05
    assert cpu_s([os.getpid()]) >= time.process_time() - 0.05


def test_file_that_is_open_for_a_moment_is_no_descriptor_at_rest(tmp_path, monkeypatch):
    """Only what a process still holds at its last readings counts."""
    monkeypatch.setattr("bench.reliability.server._BETWEEN_S", 0.01)

    async def read():
        held = Held.by(os.getpid())
        momentary = (tmp_path / "read at once").open("w")
        asyncio.get_running_loop().call_soon(momentary.close)
        return held, await Held.at_rest(os.getpid())

    before, at_rest = asyncio.run(read())
    # Another descriptor of this process may be closed meanwhile.
    assert at_rest.descriptors <= before.descriptors
