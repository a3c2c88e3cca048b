"""python -m bench.traces: what traces take of the throughput.

Starts servers of the model of `bench.peers`' load "tiny": without traces, with a
sampled share of a hundredth, and with spans of all requests, sent to a receiver in this
process. With --before, one more runs in the folder of another checkout, without traces.
Drives them with wrk by turns, and prints how many requests each answers. Answers are
checked.
"""

import argparse
import contextlib
import datetime
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench import machine, wrk
from bench.capture import row
from bench.figures import Clients, Seen, Timing
from bench.load import Target, by_wrk
from bench.peers.loads import LOADS, prepare
from testing.server import ROOT, serving

_TINY = LOADS["tiny"]
_CLIENTS = Clients(32)
_OFF, _BEFORE = "off", "before"
_A_HUNDREDTH = {
    "OTEL_TRACES_SAMPLER": "traceidratio",
    "OTEL_TRACES_SAMPLER_ARG": "0.01",
}


class _Receiver(ThreadingHTTPServer):
    """Answers what exporters send, and counts their bytes."""

    received_bytes = 0


class _Handler(BaseHTTPRequestHandler):
    server: _Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received_bytes += len(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def receiving() -> Iterator[_Receiver]:
    """Receive spans on a free port."""
    receiver = _Receiver(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()


def variants(port: int) -> dict[str, Mapping[str, str]]:
    """Return the environment of each variant; a receiver is on the port."""
    traced = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
    }
    return {_OFF: {}, "a hundredth": traced | _A_HUNDREDTH, "all requests": traced}


def main() -> None:
    """Print a table with a row for each variant."""
    parser = argparse.ArgumentParser(prog="python -m bench.traces")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4, help="for each")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="a checkout")
    args = parser.parse_args()
    wrk.require()
    print(" ".join(["python -m bench.traces", *sys.argv[1:]]))
    print(datetime.datetime.now(datetime.UTC).date(), machine.describe(), flush=True)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        prepared = prepare(_TINY, Path(name) / "tiny")
        receiver = stack.enter_context(receiving())
        environments = variants(receiver.server_port)
        if args.before:
            environments = {_OFF: {}, _BEFORE: {}, **environments}
        targets = {}
        for variant, environ in environments.items():
            root = args.before if variant == _BEFORE else ROOT
            server = stack.enter_context(
                serving(
                    "--threads=4",
                    root=root,
                    environ=environ,
                    model_dir=str(prepared.models),
                )
            )
            targets[variant] = Target(server.port, prepared)
        seen = _by_turns(targets, args.rounds, args.seconds)
        received_mib = receiver.received_bytes / 2**20
    print("\n| traces | requests/s | share of `off`, median | of each round | failed |")
    print("|---|---|---|---|---|")
    for variant, found in seen.items():
        print(row(variant, found, seen[_OFF]))
    print(f"\n{received_mib:.1f} MiB of spans were received.")


def _by_turns(
    targets: Mapping[str, Target], rounds: int, seconds: float
) -> dict[str, list[Seen]]:
    """Drive each server once a round, forth and back."""
    seen: dict[str, list[Seen]] = {each: [] for each in targets}
    for number in range(rounds):
        for variant in list(targets)[:: -1 if number % 2 else 1]:
            found = by_wrk(targets[variant], _CLIENTS, Timing(1, seconds))
            seen[variant].append(found)
            print(variant, found, flush=True)
    return seen


if __name__ == "__main__":
    main()
