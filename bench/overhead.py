"""python -m bench.overhead: what capture, the request log and traces cost.

Serves the model of `bench.peers`' load "tiny": one server captures, as its basket.toml
is rewritten, since two processes of the same settings may differ by more than what is
measured; one has a request log of all requests, and others send spans to a receiver in
this process. wrk drives them by turns, in the opposite order in every other round.
Prints how many requests each answers, its CPU time for each of them, and which share
of them was captured. Answers are checked.
"""

import argparse
import contextlib
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import sub
from pathlib import Path
from typing import NamedTuple

from bench import machine, wrk
from bench.figures import Clients, Timing
from bench.load import Target, by_wrk
from bench.peers.loads import LOADS, prepare
from bench.prepared import Prepared
from bench.report import header, table
from testing.processes import cpu_s, family
from testing.server import Server, serving, sum_of

_TINY = LOADS["tiny"]
_CLIENTS = Clients(32)
# A new basket.toml has taken effect by then.
_RELOAD_S = 3
_OFF = "off"
_REQUESTS = "basket_requests_total{"
_CAPTURED = 'basket_captured_total{model="tiny",result="written"}'
_HEADING = (
    *("", "requests/s", f"share of `{_OFF}`", "of each round", "CPU time (us)"),
    *(f"times that of `{_OFF}`", "captured", "failed"),
)


class Variant(NamedTuple):
    """Which server is measured, and its model's basket.toml."""

    site: str
    config: str = ""


VARIANTS = {
    _OFF: Variant("capture"),
    "[capture] share = 0": Variant("capture", "[capture]\nshare = 0\n"),
    "[capture] share = 1.0": Variant("capture", "[capture]\nshare = 1.0\n"),
    "request log": Variant("log"),
    "traces of a hundredth": Variant("some spans"),
    "traces": Variant("spans"),
}


class Round(NamedTuple):
    """Requests per second, CPU seconds for each, the captured share, and failures."""

    rate: float
    cpu_s: float
    captured: float
    failed: int


class Site:
    """A running server of a copy of the model."""

    def __init__(
        self,
        stack: ExitStack,
        prepared: Prepared,
        folder: Path,
        environ: Mapping[str, str],
        **settings: str,
    ) -> None:
        models = folder / "models"
        shutil.copytree(prepared.models, models)
        self._config = models / _TINY.name / "basket.toml"
        self._config.write_text("")
        running = serving(
            "--threads=4", environ=environ, model_dir=str(models), **settings
        )
        self._server: Server = stack.enter_context(running)
        self._target = Target(self._server.port, prepared)

    def drive(self, config: str, seconds: float) -> Round:
        """Put the server under load with this basket.toml."""
        if config != self._config.read_text():
            self._config.write_text(config)
            time.sleep(_RELOAD_S)
        before = self._counts()
        seen = by_wrk(self._target, _CLIENTS, Timing(1, seconds))
        used_s, requests, captured = map(sub, self._counts(), before)
        return Round(seen.rate, used_s / requests, captured / requests, seen.failed)

    def _counts(self) -> tuple[float, float, float]:
        """Return the CPU seconds, the requests and the captured ones so far."""
        text = self._server.request("GET", "/metrics").body.decode()
        requests, captured = (sum_of(text, name) for name in (_REQUESTS, _CAPTURED))
        return cpu_s(family(self._server.process.pid)), requests, captured


@contextlib.contextmanager
def _receiving() -> Iterator[int]:
    """Receive spans, and drop them; return the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        try:
            yield receiver.server_port
        finally:
            receiver.shutdown()
            thread.join()


def _sites(stack: ExitStack, folder: Path, names: set[str]) -> dict[str, Site]:
    """Start the servers of these names."""
    prepared = prepare(_TINY, folder / _TINY.name)
    port = stack.enter_context(_receiving())
    spans = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
    }
    sampled = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}
    environs = {"spans": spans, "some spans": spans | sampled}
    settings = {
        "capture": {"capture_dir": f"{folder}/captured"},
        "log": {"request_log": f"{folder}/requests.jsonl"},
    }
    return {
        name: Site(
            *(stack, prepared, folder / name, environs.get(name, {})),
            **settings.get(name, {}),
        )
        for name in sorted(names)
    }


def row(variant: str, found: list[Round], off: list[Round]) -> tuple[str, ...]:
    """Return a variant's row of the table; `off` are the same rounds without any."""
    shares = [each.rate / base.rate for each, base in zip(found, off, strict=True)]
    more = [each.cpu_s / base.cpu_s for each, base in zip(found, off, strict=True)]
    return (
        *(variant, f"{statistics.median(each.rate for each in found):.0f}"),
        *(f"{statistics.median(shares):.3f}", " ".join(f"{x:.3f}" for x in shares)),
        f"{1e6 * statistics.median(each.cpu_s for each in found):.0f}",
        f"{statistics.median(more):.3f}",
        f"{statistics.median(each.captured for each in found):.3f}",
        str(sum(each.failed for each in found)),
    )


def main() -> None:
    """Print a table with a row for each variant."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4, help="for each")
    only = "variants whose names contain this"
    parser.add_argument("--only", metavar="WORDS", default="", help=only)
    args = parser.parse_args()
    wrk.require()
    print(header(["bench.overhead", *sys.argv[1:]], machine.describe()), flush=True)
    chosen = [
        (name, variant)
        for name, variant in VARIANTS.items()
        if name == _OFF or args.only in name
    ]
    seen: dict[str, list[Round]] = {name: [] for name, _ in chosen}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        sites = _sites(stack, Path(folder), {each.site for _, each in chosen})
        for number in range(args.rounds):
            for name, variant in chosen[:: -1 if number % 2 else 1]:
                site = sites[variant.site]
                seen[name].append(site.drive(variant.config, args.seconds))
                print(name, seen[name][-1], flush=True)
    rows = [row(name, found, seen[_OFF]) for name, found in seen.items()]
    print("", *table(_HEADING, rows), sep="\n")


if __name__ == "__main__":
    main()
