"""python -m bench.capture: what capture and the request log take of the throughput.

One server of the model of `bench.peers`' load "tiny" runs without [capture], with share
0 and with 1.0, as its basket.toml is rewritten: two processes of the same settings may
differ by more than these. A second server has a request log of all requests. wrk drives
them by turns, in the opposite order in every other round. Prints how many requests each
answers, and the server's CPU time for each of them. Answers are checked.
"""

import argparse
import datetime
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import machine, wrk
from bench.figures import Clients, Timing
from bench.load import Target, by_wrk
from bench.peers.loads import LOADS, prepare
from bench.prepared import Prepared
from testing.processes import cpu_s, family
from testing.server import Server, metric_sum, serving

_TINY = LOADS["tiny"]
_CLIENTS = Clients(32)
_OFF, _LOG = "off", "request log"
# By variant: the model's basket.toml.
_CONFIGS = {
    _OFF: "",
    "[capture] share = 0": "[capture]\nshare = 0\n",
    "[capture] share = 1.0": "[capture]\nshare = 1.0\n",
    _LOG: "",
}
# A new basket.toml has taken effect by then.
_RELOAD_S = 3


class Round(NamedTuple):
    """Requests answered per second, the server's CPU time for each, and failures."""

    rate: float
    cpu_s: float
    failed: int


class Site:
    """A running server of a copy of the model."""

    def __init__(
        self, stack: ExitStack, prepared: Prepared, folder: Path, **settings: str
    ) -> None:
        shutil.copytree(prepared.models, folder / "models")
        self._config = folder / "models" / _TINY.name / "basket.toml"
        self._config.write_text("")
        settings["model_dir"] = str(folder / "models")
        self._server: Server = stack.enter_context(serving("--threads=4", **settings))
        self._target = Target(self._server.port, prepared)

    def drive(self, config: str, seconds: float) -> Round:
        """Put the server under load with this basket.toml."""
        if config != self._config.read_text():
            self._config.write_text(config)
            time.sleep(_RELOAD_S)
        before = self._used()
        seen = by_wrk(self._target, _CLIENTS, Timing(1, seconds))
        used_s, requests = map(float.__sub__, self._used(), before)
        return Round(seen.rate, used_s / requests, seen.failed)

    def _used(self) -> tuple[float, float]:
        """Return the CPU seconds and the requests so far."""
        used_s = cpu_s(family(self._server.process.pid))
        return used_s, metric_sum(self._server, "basket_requests_total")


def row(variant: str, found: list[Round], off: list[Round]) -> str:
    """Return a variant's row of the table; `off` are the same rounds without any."""
    shares = [each.rate / base.rate for each, base in zip(found, off, strict=True)]
    more = [each.cpu_s / base.cpu_s for each, base in zip(found, off, strict=True)]
    cells = (
        *(variant, f"{statistics.median(each.rate for each in found):.0f}"),
        *(f"{statistics.median(shares):.3f}", " ".join(f"{x:.3f}" for x in shares)),
        f"{1e6 * statistics.median(each.cpu_s for each in found):.0f}",
        *(f"{statistics.median(more):.3f}", str(sum(each.failed for each in found))),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table with a row for each variant."""
    parser = argparse.ArgumentParser(prog="python -m bench.capture")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4, help="for each")
    args = parser.parse_args()
    wrk.require()
    print(" ".join(["python -m bench.capture", *sys.argv[1:]]))
    print(datetime.datetime.now(datetime.UTC).date(), machine.describe(), flush=True)
    seen: dict[str, list[Round]] = {each: [] for each in _CONFIGS}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        prepared = prepare(_TINY, folder / "tiny")
        capturing = Site(stack, prepared, folder / "c", capture_dir=f"{name}/captured")
        logging = Site(stack, prepared, folder / "l", request_log=f"{name}/log")
        order = list(_CONFIGS.items())
        for _ in range(args.rounds):
            for variant, config in order:
                site = logging if variant == _LOG else capturing
                seen[variant].append(site.drive(config, args.seconds))
                print(variant, seen[variant][-1], flush=True)
            order.reverse()
    titles = ("requests/s", "share of `off`", "of each round", "CPU time (us)")
    print(f"\n| | {' | '.join(titles)} | times that of `off` | failed |")
    print("|---|---|---|---|---|---|---|")
    for variant, found in seen.items():
        print(row(variant, found, seen[_OFF]))


if __name__ == "__main__":
    main()
