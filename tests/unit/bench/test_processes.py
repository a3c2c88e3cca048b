"""The CPU time and the descriptors of a server's processes."""

import asyncio
import os
import subprocess
import sys
import time

from bench.reliability.server import Held
from testing.processes import cpu_s, family


def test_processes_of_a_server_are_found_with_their_time():
    """A child of a child belongs to the family; its CPU time counts when it ends."""
    burn = "sum(range(10**7))"
    code = (
        "import subprocess, sys; "
        f"subprocess.run([sys.executable, '-c', '{burn}; print(1, flush=True); input()'"
        "]); print(2, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        pids = family(process.pid)
        used_s = cpu_s(pids)
        assert pids[0] == process.pid
        assert len(pids) == 2
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert family(process.pid) == [process.pid]
        assert cpu_s([process.pid]) >= used_s > 0
        process.communicate(b"\n")
    assert cpu_s([os.getpid()]) >= time.process_time() - 0.05


def test_file_that_is_open_for_a_moment_is_no_descriptor_at_rest(tmp_path):
    """Only what a process still holds at its last readings counts."""

    async def read():
        held = Held.by(os.getpid())
        momentary = (tmp_path / "read at once").open("w")
        asyncio.get_running_loop().call_soon(momentary.close)
        return held, await Held.at_rest(os.getpid())

    before, at_rest = asyncio.run(read())
    assert at_rest.descriptors == before.descriptors
