"""python -m bench.ray: what Ray Serve costs for one request, and what replicas gain.

Asks the same simulated model of 0 ms by turns, over one connection each: plain Basket,
and Basket in a replica behind Ray's proxy. Then saturates a simulated device of 50 ms,
four rows a batch, with one replica and with two, on two nodes of this machine, in
turns. Answers are checked.
"""

import argparse
import datetime
import http.client
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from bench import machine, wrk
from bench.figures import Seen, percentile
from testing.ray_cluster import SPREAD, RayCluster, ray_cluster
from testing.server import serving, simulated_models

_BODY = b'{"instances": [[1, 2, 3, 4]]}'
_ANSWER = b'{"predictions":[[1.0,2.0,3.0,4.0]]}'
_ECHO = {"base_ms": 0, "input_shape": [4], "outputs": 4}
_DEVICE = {"base_ms": 50, "input_shape": [4], "outputs": 4}
_BATCH = {"BASKET_MAX_BATCH_SIZE": 4}
# More than two replicas have in batches and in the making.
_CLIENTS = 32
_ROUNDS = 3
_WARM_UP_S = 2
_SAMPLE_EVERY_S = 0.2


class Latency(NamedTuple):
    """Milliseconds, and how many answers differed."""

    median_ms: float
    p95_ms: float
    wrong: int


def latencies(ports: list[int], requests: int) -> list[Latency]:
    """Ask each server by turns, `requests` times."""
    times_s: list[list[float]] = [[] for _ in ports]
    wrong = [0 for _ in ports]
    connections = [http.client.HTTPConnection("127.0.0.1", port, 60) for port in ports]
    for _ in range(requests):
        for place, connection in enumerate(connections):
            began_at = time.perf_counter()
            connection.request("POST", "/predict", _BODY)
            answer = connection.getresponse().read()
            times_s[place].append(time.perf_counter() - began_at)
            wrong[place] += answer != _ANSWER
    for connection in connections:
        connection.close()
    # The first tenth is the warm-up.
    measured = [each[requests // 10 :] for each in times_s]
    return [
        Latency(median(each) * 1000, percentile(each, 95) * 1000, differ)
        for each, differ in zip(measured, wrong, strict=True)
    ]


class Sampler:
    """Sends five requests a second beside a load; reads batch sizes, checks answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sizes: list[int] = []
        self.wrong = 0

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, 60)) as client:
            while not self._over.wait(_SAMPLE_EVERY_S):
                client.request("POST", "/predict", _BODY)
                reply = client.getresponse()
                self.wrong += reply.read() != _ANSWER
                self.sizes.append(int(reply.headers["X-Batch-Size"]))


def rate(cluster: RayCluster, body: Path, seconds: float) -> tuple[Seen, Sampler]:
    """Saturate the replicas; return what was seen."""
    url = f"http://127.0.0.1:{cluster.port}/predict"
    wrk.drive(url, [body], "application/json", _CLIENTS, _WARM_UP_S)
    with Sampler(cluster.port) as sampler:
        seen = wrk.drive(url, [body], "application/json", _CLIENTS, seconds)
    return seen, sampler


def _overhead(cluster: RayCluster, folder: Path, requests: int) -> None:
    models = simulated_models(folder, echo=_ECHO)
    cluster.deploy({"model_dir": models}, num_replicas=1)
    cluster.wait_for_replicas(1)
    print("\n| plain, median (ms) | p95 | Ray, median (ms) | p95 | more (ms) | wrong |")
    print("|---|---|---|---|---|---|")
    with serving("--threads=4", model_dir=models) as server:
        for _ in range(_ROUNDS):
            plain, ray = latencies([server.port, cluster.port], requests)
            print(
                f"| {plain.median_ms:.2f} | {plain.p95_ms:.2f} | {ray.median_ms:.2f} "
                f"| {ray.p95_ms:.2f} | {ray.median_ms - plain.median_ms:.2f} "
                f"| {plain.wrong + ray.wrong} |"
            )


def _gain(cluster: RayCluster, folder: Path, seconds: float) -> None:
    args = {"model_dir": simulated_models(folder, device=_DEVICE), "settings": _BATCH}
    body = folder.parent / "body.json"
    body.write_bytes(_BODY)
    print(
        "\n| requests/s, 1 replica | rows in a batch | 2 replicas | rows in a batch "
        "| ratio | failed | wrong |"
    )
    print("|---|---|---|---|---|---|---|")
    before = {each["pid"] for each in cluster.replicas()}
    cluster.deploy(args, num_replicas=1)
    cluster.wait_for_replicas(1, without=before)
    for _ in range(_ROUNDS):
        found = []
        for replicas in (1, 2):
            cluster.deploy(args, num_replicas=replicas, max_replicas_per_node=1)
            cluster.wait_for_replicas(replicas)
            found.append(rate(cluster, body, seconds))
        (one, of_one), (two, of_two) = found
        failed = sum(each.errors + each.not_2xx for each in (one, two))
        one_rows, two_rows = (fmean(each.sizes) for each in (of_one, of_two))
        print(
            f"| {one.rate:.1f} | {one_rows:.1f} | {two.rate:.1f} | {two_rows:.1f} "
            f"| {two.rate / one.rate:.2f} | {failed} | {of_one.wrong + of_two.wrong} |"
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.ray")
    parser.add_argument("--requests", type=int, default=2000, help="for latencies")
    parser.add_argument("--seconds", type=float, default=8, help="for each rate")
    args = parser.parse_args()
    wrk.require()
    print(" ".join(["python -m bench.ray", *sys.argv[1:]]))
    packages = ("Ray", "Gunicorn")
    print(datetime.datetime.now(datetime.UTC).date(), machine.describe(packages))
    with tempfile.TemporaryDirectory() as name, ray_cluster(SPREAD) as cluster:
        folder = Path(name)
        _overhead(cluster, folder / "echo", args.requests)
        _gain(cluster, folder / "device", args.seconds)


if __name__ == "__main__":
    main()
