"""Measure the vision service: `make bench-vision`, or `python -m bench.vision`."""

import argparse
import contextlib
import datetime
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from bench import wrk
from bench.vision import peer
from bench.vision.set_ups import Server, basket, fetched, photographs
from bench.vision.wrk import Load, drive, load_seconds

_MODEL = "mobilenet_v2"
_WARM_UP_S = 6


class _Setup(NamedTuple):
    """What is measured: a server, and the connections that wrk keeps busy."""

    name: str
    connections: int
    serve: Callable[[Path], AbstractContextManager[Server]]


@contextlib.contextmanager
def _streamer(kind: str, models: Path) -> Iterator[Server]:
    with peer.service_streamer(kind, models / _MODEL / "1" / "model.keras") as found:
        yield Server(*found)


_SETUPS = (
    _Setup("naive", 64, lambda models: basket(models, threads=1, batching="off")),
    _Setup(
        "no batching, 128 threads", 64, lambda models: basket(models, batching="off")
    ),
    _Setup("Basket", 64, basket),
    _Setup("Basket", 128, basket),
    _Setup("service-streamer, gevent", 128, lambda models: _streamer("gevent", models)),
    _Setup(
        "service-streamer, threads", 128, lambda models: _streamer("threads", models)
    ),
)


def main() -> int:
    """Measure every set-up in turn, again and again, and print a table."""
    options = _options()
    wrk.require()
    peer.install()
    loads: dict[int, list[Load]] = {place: [] for place in range(len(_SETUPS))}
    with tempfile.TemporaryDirectory() as folder:
        pictures = photographs(Path(folder) / "pictures", options.side)
        models = fetched(Path(folder) / "models", _MODEL, options.size)
        for number in range(options.rounds):
            for place, setup in enumerate(_SETUPS):
                print(f"round {number + 1} of {options.rounds}: {setup.name} ...")
                sys.stdout.flush()
                loads[place].append(_measure(setup, models, pictures, options.seconds))
    print(_table(loads, options))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.vision")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--seconds", type=load_seconds, default=20, help="default: 20")
    parser.add_argument("--size", type=int, default=96, help="the model's, default: 96")
    parser.add_argument(
        "--side", type=int, default=320, help="width of the pictures, default: 320"
    )
    return parser.parse_args()


def _measure(setup: _Setup, models: Path, pictures: list[Path], seconds: int) -> Load:
    with setup.serve(models) as server:
        drive(server.url, pictures, setup.connections, _WARM_UP_S, server.pid)
        return drive(server.url, pictures, setup.connections, seconds, server.pid)


def _rate(load: Load) -> float:
    return load.seen.rate()


def _middle(seen: list[Load]) -> Load:
    """The round of median rate; of an even number, the slower one in the middle."""
    return sorted(seen, key=_rate)[(len(seen) - 1) // 2]


def _table(loads: dict[int, list[Load]], options: argparse.Namespace) -> str:
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [
        f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"MobileNetV2 {options.size} x {options.size}, JPEGs {options.side} pixels "
        f"wide; {options.seconds} s each, median of {options.rounds} rounds",
        "",
        "| server | connections | requests/s | mean (s) | p99 (s) | errors | "
        "not 2xx | MiB after 5 s | MiB at the end |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for place, setup in enumerate(_SETUPS):
        seen = loads[place]
        middle = _middle(seen)
        lines.append(
            f"| {setup.name} | {setup.connections} | {_rate(middle):.0f} | "
            f"{middle.seen.mean_s:.2f} | {middle.seen.p99_s:.2f} | "
            f"{sum(load.seen.errors for load in seen)} | "
            f"{sum(load.seen.not_2xx for load in seen)} | "
            f"{middle.mib_early:.0f} | {middle.mib_end:.0f} |"
        )
    rates = [_rate(_middle(seen)) for seen in loads.values()]
    naive, unbatched, _, basket, *peers = rates
    lines += [
        "",
        f"Basket at 128 connections: {basket / naive:.2f} x naive, "
        f"{basket / unbatched:.2f} x no batching, "
        f"{basket / max(peers):.2f} x the better service-streamer",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
