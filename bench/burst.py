"""Twenty clients at once against each set-up, on a simulated device of 300 ms.

Prints when the first, the mean and the last client had its answer, as a Markdown
table. Figures are simulated: the device only takes its time. Run `make bench-burst`.
"""

import datetime
import os
import platform
import statistics
import tempfile
import time
from http import HTTPStatus
from pathlib import Path

from testing.clients import Client, in_parallel
from testing.server import metric_sum, serving, simulated_models

_CLIENTS = 20
_ROUNDS = 5
_DEVICE = {"base_ms": 300, "per_row_ms": 0, "input_shape": [64], "outputs": 10}
_SETUPS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "naive": ((), {"batching": "off"}),
    "5 workers": (("--workers=5",), {"batching": "off"}),
    "batching": (("--threads=20",), {}),
    "batching, 500 ms timeout": (("--threads=20",), {"batch_timeout_micros": "500000"}),
    "batching x 2 workers": (("--threads=20", "--workers=2"), {}),
}


def main() -> None:
    """Measure and print every set-up, one line each as it is done."""
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{_CLIENTS} clients at once, device simulated: 300 ms a batch; median of")
    print(f"{_ROUNDS} rounds\n")
    print("| set-up | first (s) | mean (s) | last (s) | mean batch (rows) |")
    print("|---|---|---|---|---|")
    for name, (arguments, settings) in _SETUPS.items():
        first, mean, last, rows = measure(arguments, settings)
        times = f"{first:.2f} | {mean:.2f} | {last:.2f}"
        print(f"| {name} | {times} | {rows:.1f} |", flush=True)


def measure(
    arguments: tuple[str, ...], settings: dict[str, str]
) -> tuple[float, float, float, float]:
    """Seconds until the first, mean and last answer, and the mean rows of a batch."""
    with tempfile.TemporaryDirectory() as folder:
        models = simulated_models(Path(folder), slow=_DEVICE)
        with serving(*arguments, model_dir=models, **settings) as server:
            rounds = [_round(server.port) for _ in range(_ROUNDS)]
            batches = metric_sum(server, "basket_batch_rows_count")
            rows = metric_sum(server, "basket_batch_rows_sum")
    return (
        statistics.median(min(times) for times in rounds),
        statistics.median(statistics.mean(times) for times in rounds),
        statistics.median(max(times) for times in rounds),
        rows / batches,
    )


def _round(port: int) -> list[float]:
    times = [0.0] * _CLIENTS
    clients = [Client(port) for _ in range(_CLIENTS)]

    def work(place: int) -> None:
        with clients[place] as client:
            began_at = time.monotonic()
            client.send([[float(place)] * 64])
            assert client.receive().status == HTTPStatus.OK
            times[place] = time.monotonic() - began_at

    in_parallel(work, _CLIENTS)
    return times


if __name__ == "__main__":
    main()
