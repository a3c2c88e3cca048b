"""Compare one model process behind web workers with a model in each worker.

`python -m bench.shared_model` prints requests/s of a tiny model, the median of one
connection, and memory; with `--memory` what eight workers hold of a model of 0.5 GiB.
It needs Debian's package wrk.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from bench import machine, wrk
from bench.figures import Clients, Seen, Timing
from bench.load import Target, by_wrk
from bench.peers.loads import LOADS, prepare
from bench.prepared import Prepared
from bench.report import header, table
from testing.server import Server, serving

_CONNECTIONS = 32
_SHARED = {"model_process": "shared"}
# Title, Gunicorn's arguments, settings; the first is compared with the others.
_SPEED: tuple[tuple[str, tuple[str, ...], dict[str, str]], ...] = (
    ("in 1 worker", ("--threads=32",), {}),
    ("in 2 workers", ("--workers=2", "--threads=32"), {}),
    ("in 4 sync workers", ("--workers=4", "--worker-class=sync"), {}),
    ("shared, 2 workers", ("--workers=2", "--threads=32"), _SHARED),
    ("shared, 4 sync workers", ("--workers=4", "--worker-class=sync"), _SHARED),
)
_MEMORY: tuple[tuple[str, tuple[str, ...], dict[str, str]], ...] = (
    ("1 worker with its own", ("--threads=4",), {}),
    ("8 workers, each its own", ("--workers=8", "--threads=4"), {}),
    ("8 workers, shared", ("--workers=8", "--threads=4"), _SHARED),
)


def main() -> int:
    """Measure, and print a table; return 1 if a request failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", action="store_true", help="of 0.5 GiB, not speed")
    parser.add_argument("--quick", action="store_true", help="one short round")
    options = parser.parse_args()
    wrk.require()
    print(header(["bench.shared_model", *sys.argv[1:]], machine.describe()), end="\n\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "load"
        if options.memory:
            return _compare_memory(prepare(LOADS["big"], folder))
        return _compare_speed(prepare(LOADS["tiny"], folder), options.quick)


def _compare_speed(prepared: Prepared, quick: bool) -> int:
    rounds, seconds = (1, 1) if quick else (3, 5)
    models = str(prepared.models)
    # A pair for each round: 32 connections, and one.
    seen: dict[str, list[tuple[Seen, Seen]]] = {title: [] for title, *_ in _SPEED}
    with contextlib.ExitStack() as stack:
        servers = {
            title: stack.enter_context(serving(*args, model_dir=models, **settings))
            for title, args, settings in _SPEED
        }
        # By turns, so that a slow minute of the machine affects all alike.
        for _ in range(rounds):
            for title, server in servers.items():
                target = Target(server.port, prepared)
                many = by_wrk(target, Clients(_CONNECTIONS), Timing(1, seconds))
                one = by_wrk(target, Clients(1), Timing(1, min(seconds, 2)))
                seen[title].append((many, one))
        memory_mib = {title: _memory_mib(server) for title, server in servers.items()}
    print(f"64 -> 64 -> 10 dense, JSON; median of {rounds} rounds of {seconds} s\n")
    heading = (
        *("model", f"requests/s, {_CONNECTIONS} connections", "to the first"),
        *("median of 1 connection (ms)", "added (ms)", "memory (MiB)", "failed, wrong"),
    )
    body = []
    first_rate, first_ms = _medians(seen[_SPEED[0][0]])
    for title, pairs in seen.items():
        rate, median_ms = _medians(pairs)
        failed = sum(many.failed + one.failed for many, one in pairs)
        figures = f"{rate:.0f}", f"{rate / first_rate:.2f}", f"{median_ms:.2f}"
        memory = f"{memory_mib[title]:.0f}"
        body.append((title, *figures, f"{median_ms - first_ms:.2f}", memory, failed))
    print("\n".join(table(heading, body)))
    return 1 if any(row[-1] for row in body) else 0


def _medians(pairs: Sequence[tuple[Seen, Seen]]) -> tuple[float, float]:
    """Return requests/s, and the median of one connection in milliseconds."""
    rate = statistics.median(many.rate for many, _ in pairs)
    return rate, 1000 * statistics.median(one.p50_s for _, one in pairs)


def _compare_memory(prepared: Prepared) -> int:
    body = []
    for title, args, settings in _MEMORY:
        with serving(*args, model_dir=str(prepared.models), **settings) as server:
            for _ in range(16):
                assert server.predict([[0.5] * 4096]).status == HTTPStatus.OK
            body.append((title, f"{_memory_mib(server):.0f}"))
    heading = ("model", "proportional set size of all processes (MiB)")
    print("8 layers of 4096, 0.50 GiB of weights\n")
    print("\n".join(table(heading, body)))
    return 0


def _memory_mib(server: Server) -> float:
    """Return the proportional set size of all processes of a server."""
    return sum(map(_pss_mib, [server.process.pid, *server.workers()]))


def _pss_mib(pid: int) -> float:
    """Return a process's memory, with its share of pages that several hold."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
