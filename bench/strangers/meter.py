"""CPU time and memory of a server's processes during an attack, from /proc."""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from bench import machine
from testing.processes import cpu_s, family, memory_mib
from testing.server import Server

LIMIT_S = 150.0
# The share of the machine's free memory at which a server is killed.
_MOST_MEMORY = 0.6
# Quiet: for so long no more load than so many cores above that of before.
_QUIET_S, _QUIET_CORES = 3.0, 0.1
# To /proc/PID/clear_refs: let VmHWM begin at the present resident memory.
_RESET_PEAK = "5"


class Look(NamedTuple):
    """CPU seconds of all processes up to a time, both since the first look."""

    at_s: float
    cpu_s: float


class Spent(NamedTuple):
    """What a server used beyond its idle load; memory in MiB."""

    cpu_s: float = 0.0
    late_cpu_s: float = 0.0
    peak_mib: float = 0.0
    kept_mib: float = 0.0


class Meter:
    """Looks at a server's processes; kills them if they take too long or too much."""

    def __init__(self, server: Server) -> None:
        """Begin to measure the idle load."""
        self._server = server
        self._workers = server.workers()
        self._free_mib = machine.memory_bytes("MemAvailable") / (1 << 20)
        self._start()

    def _start(self) -> None:
        self._pids = family(self._server.process.pid)
        self._began_at, self._began_cpu_s = time.monotonic(), cpu_s(self._pids)
        self._looks: list[Look] = []

    def begin(self) -> None:
        """End the idle time, and begin to measure the attack."""
        self._look()
        self._idle_cores = self._looks[-1].cpu_s / self._looks[-1].at_s
        for pid in self._pids:
            Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)
        self._start()
        self._began_mib = self._peak_mib = self._mib = memory_mib(self._pids)

    def look(self) -> str:
        """Read CPU time and memory; return why the server was killed, if it was."""
        self._look()
        self._mib = memory_mib(self._pids)
        self._peak_mib = max(self._peak_mib, memory_mib(self._pids, "VmHWM"))
        problem = self._problem()
        if problem:
            os.killpg(self._server.process.pid, signal.SIGKILL)
        return problem

    def _look(self) -> None:
        self._pids = family(self._server.process.pid)
        at_s = time.monotonic() - self._began_at
        self._looks.append(Look(at_s, cpu_s(self._pids) - self._began_cpu_s))

    def _problem(self) -> str:
        if self._looks[-1].at_s > LIMIT_S:
            return f"killed after {LIMIT_S:.0f} s"
        if self._mib > _MOST_MEMORY * self._free_mib:
            return f"killed at {self._mib:.0f} MiB"
        return "" if self._server.workers() == self._workers else "a worker ended"

    def now_s(self) -> float:
        """Return the time of the last look."""
        return self._looks[-1].at_s

    def is_quiet(self) -> bool:
        """Return whether the load was that of the idle time for a few seconds."""
        last = self._looks[-1]
        since = self._at(last.at_s - _QUIET_S)
        cores = (last.cpu_s - since.cpu_s) / max(last.at_s - since.at_s, 1e-9)
        return last.at_s >= _QUIET_S and cores < self._idle_cores + _QUIET_CORES

    def spent(self, waits_s: float) -> Spent:
        """Return what was used; CPU is late that was used after `waits_s`."""
        last, begin = self._looks[-1], self._at(waits_s)
        idle_s = self._idle_cores * last.at_s
        late_s = last.cpu_s - begin.cpu_s - self._idle_cores * (last.at_s - begin.at_s)
        return Spent(
            max(last.cpu_s - idle_s, 0),
            max(late_s, 0),
            self._peak_mib - self._began_mib,
            self._mib - self._began_mib,
        )

    def _at(self, time_s: float) -> Look:
        """Return the first look at this time or later, else the last one."""
        return next(
            (look for look in self._looks if look.at_s >= time_s), self._looks[-1]
        )
