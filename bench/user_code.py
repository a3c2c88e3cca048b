"""python -m bench.user_code: what a service.py costs, and what web workers gain.

Serves the demo model twice, as it is and with a service.py whose preprocess and
postprocess return what they get, and prints the median latency of both, asked by
turns over one connection. Then serves a simulated model of 1 ms in a shared model
process, with a preprocess that takes 10 ms of a core, by 1 and by 2 web workers in
turns, and prints how many requests are answered. Answers are checked.
"""

import argparse
import http.client
import json
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import machine, wrk
from bench.figures import Seen
from bench.report import header, table
from testing.server import ROOT, serving

_EMPTY = """
def preprocess(instance):
    return instance


def postprocess(row):
    return row
"""
_BUSY_MS = 10
_BUSY = f"""
import time


def preprocess(instance):
    end = time.thread_time() + {_BUSY_MS / 1000}
    while time.thread_time() < end:
        pass
    return instance
"""
_SIMULATION = {"base_ms": 1, "input_shape": [1], "outputs": 1}
_ROUNDS = 3
# Each sends again after its answer.
_CLIENTS = 32


class Medians(NamedTuple):
    """Median latencies in ms, and how many answers differed."""

    plain_ms: float
    service_ms: float
    wrong: int


def _add(models: Path, name: str, code: str) -> Path:
    version = models / name / "1"
    version.mkdir(parents=True)
    if code:
        (version / "service.py").write_text(code)
    return version


def latency(models: Path, requests: int) -> Medians:
    """Ask a model with and without service.py by turns, `requests` times each."""
    for name, code in (("plain", ""), ("service", _EMPTY)):
        source = ROOT / "models" / "digits" / "1" / "model.keras"
        shutil.copy(source, _add(models, name, code))
    row = np.random.default_rng(0).random((1, 8, 8, 1)).round(3)
    body = json.dumps({"instances": row.tolist()}).encode()
    times_s: dict[str, list[float]] = {"plain": [], "service": []}
    wrong = 0
    with serving("--threads=4", model_dir=str(models), user_code="on") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, 60)
        with closing(connection):
            for _ in range(requests):
                answers = []
                for name, taken in times_s.items():
                    began_at = time.perf_counter()
                    connection.request("POST", f"/v1/models/{name}:predict", body)
                    answers.append(connection.getresponse().read())
                    taken.append(time.perf_counter() - began_at)
                wrong += not _agree(*answers)
    # The first tenth is the warm-up.
    medians = [statistics.median(each[requests // 10 :]) for each in times_s.values()]
    return Medians(*(each * 1000 for each in medians), wrong)


def _agree(plain: bytes, service: bytes) -> bool:
    found = [json.loads(each)["predictions"] for each in (plain, service)]
    return np.allclose(*found, rtol=1e-5)


def rate(models: Path, workers: int, seconds: float) -> Seen:
    """Drive a slow preprocess behind so many web workers."""
    body = models.parent / "body.json"
    body.write_text('{"instances": [[7]]}')
    settings = {"model_dir": str(models), "model_process": "shared"}
    args = ["--threads=4", f"--workers={workers}"]
    with serving(*args, user_code="on", **settings) as server:
        assert server.predict([[7]]).json() == {"predictions": [[7.0]]}
        url = f"http://127.0.0.1:{server.port}/predict"
        wrk.drive(url, [body], "application/json", _CLIENTS, 1)
        return wrk.drive(url, [body], "application/json", _CLIENTS, seconds)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.user_code")
    parser.add_argument("--requests", type=int, default=5000, help="for latencies")
    parser.add_argument("--seconds", type=float, default=8, help="for each rate")
    args = parser.parse_args()
    wrk.require()
    print(header(["bench.user_code", *sys.argv[1:]], machine.describe()), end="\n\n")
    with tempfile.TemporaryDirectory() as folder:
        rows: list[tuple[object, ...]] = []
        for number in range(_ROUNDS):
            found = latency(Path(folder) / str(number), args.requests)
            more_ms = found.service_ms - found.plain_ms
            times = (found.plain_ms, found.service_ms, more_ms)
            rows.append((*(f"{each:.3f}" for each in times), found.wrong))
        heading = ("median (ms)", "with service.py (ms)", "more (ms)", "wrong")
        print(*table(heading, rows), "", sep="\n", flush=True)
        models = Path(folder) / "busy" / "models"
        version = _add(models, "busy", _BUSY)
        (version / "simulated.json").write_text(json.dumps(_SIMULATION))
        rows = []
        for _ in range(_ROUNDS):
            one, two = (rate(models, workers, args.seconds) for workers in (1, 2))
            rates = (f"{one.rate:.1f}", f"{two.rate:.1f}", f"{two.rate / one.rate:.2f}")
            rows.append((*rates, one.failed + two.failed))
        heading = ("requests/s, 1 web worker", "2 web workers", "ratio", "failed")
        print(*table(heading, rows), sep="\n")


if __name__ == "__main__":
    main()
