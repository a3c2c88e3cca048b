"""One model process behind web workers, beside a model in a worker.

`python -m bench.shared_model` prints a Markdown table: requests/s of a tiny model, what
the socket adds to one row, and memory; with `--memory` what eight workers hold of a
model of 0.5 GiB. It wants Debian's package wrk.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from bench.wrk import Seen, drive
from testing.server import Server, serving

_ROUNDS = 3
_SECONDS = 5
_CONNECTIONS = 32


@dataclass(frozen=True)
class SetUp:
    """A way to run the same model."""

    name: str
    args: tuple[str, ...]
    model_process: str = "worker"


_SPEED = (
    SetUp("in 1 worker", ("--threads=32",)),
    SetUp("in 2 workers", ("--workers=2", "--threads=32")),
    SetUp("in 4 sync workers", ("--workers=4", "--worker-class=sync")),
    SetUp("shared, 2 workers", ("--workers=2", "--threads=32"), "shared"),
    SetUp("shared, 4 sync workers", ("--workers=4", "--worker-class=sync"), "shared"),
)
_MEMORY = (
    SetUp("1 worker with its own", ("--threads=4",)),
    SetUp("8 workers, each its own", ("--workers=8", "--threads=4")),
    SetUp("8 workers, shared", ("--workers=8", "--threads=4"), "shared"),
)


def main() -> None:
    """Measure the set-ups by turns, so that noise hits all alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", action="store_true", help="of 0.5 GiB, not speed")
    asked = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory() as folder:
        if asked.memory:
            _make(Path(folder), [4096] * 9)
            _compare_memory(folder)
        else:
            _make(Path(folder), [64, 64, 10])
            _compare_speed(folder)


def _compare_speed(folder: str) -> None:
    rates = defaultdict(list)
    medians_ms = defaultdict(list)
    with contextlib.ExitStack() as stack:
        servers = {each: stack.enter_context(_serve(each, folder)) for each in _SPEED}
        for server in servers.values():
            _wrk(server, _CONNECTIONS, 1)
        for _ in range(_ROUNDS):
            for each, server in servers.items():
                busy = _wrk(server, _CONNECTIONS, _SECONDS)
                rates[each].append(busy.rate())
                medians_ms[each].append(1000 * _wrk(server, 1, 2).p50_s)
        memory_mib = {each: _memory_mib(server) for each, server in servers.items()}
    first = _SPEED[0]
    print(f"64 -> 64 -> 10 dense, JSON; median of {_ROUNDS} rounds of {_SECONDS} s\n")
    print(
        f"| model | requests/s, {_CONNECTIONS} connections | to the first "
        "| median of 1 connection (ms) | added (ms) | memory (MiB) |"
    )
    print("|---|---|---|---|---|---|")
    for each in _SPEED:
        rate, median_ms = map(statistics.median, (rates[each], medians_ms[each]))
        times = rate / statistics.median(rates[first])
        added_ms = median_ms - statistics.median(medians_ms[first])
        print(
            f"| {each.name} | {rate:.0f} | {times:.2f} | {median_ms:.2f} "
            f"| {added_ms:.2f} | {memory_mib[each]:.0f} |"
        )


def _compare_memory(folder: str) -> None:
    print("8 layers of 4096, 0.50 GiB of weights\n")
    print("| model | proportional set size of all processes (MiB) |")
    print("|---|---|")
    for each in _MEMORY:
        with _serve(each, folder) as server:
            row = [[0.5] * 4096]
            for _ in range(16):
                assert server.predict(row).status == HTTPStatus.OK
            print(f"| {each.name} | {_memory_mib(server):.0f} |", flush=True)


@contextlib.contextmanager
def _serve(each: SetUp, folder: str) -> Iterator[Server]:
    settings = {"model_dir": folder, "model_process": each.model_process}
    with serving(*each.args, **settings) as server:
        yield server


def _make(folder: Path, sizes: list[int]) -> None:
    # Only here, so that TensorFlow's memory and threads are not in the way.
    code = (
        "import sys, keras\n"
        f"sizes = {sizes}\n"
        "layers = [keras.layers.Dense(n, activation='relu') for n in sizes[1:]]\n"
        "keras.Sequential([keras.Input([sizes[0]]), *layers]).save(sys.argv[1])\n"
    )
    file = folder / "dense" / "1" / "model.keras"
    file.parent.mkdir(parents=True)
    command = [sys.executable, "-c", code, str(file)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)  # noqa: S603


def _wrk(server: Server, connections: int, seconds: int) -> Seen:
    row = [round(place / 64, 3) for place in range(1, 65)]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as body:
        json.dump({"instances": [row]}, body)
        body.flush()
        url = f"http://127.0.0.1:{server.port}/predict"
        files = [Path(body.name)]
        seen = drive(url, files, "application/json", connections, seconds)
    assert not seen.not_2xx + seen.errors, seen
    return seen


def _memory_mib(server: Server) -> float:
    """The proportional set size of all its processes."""
    return sum(map(_pss_mib, [server.process.pid, *server.workers()]))


def _pss_mib(pid: int) -> float:
    """What a process holds, its share of what several do."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
