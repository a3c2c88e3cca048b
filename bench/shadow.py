"""python -m bench.shadow: what shadow traffic of all requests adds to clients' latency.

Starts three servers with two versions of a simulated model: without shadow traffic, and
with copies of all requests, where the versions have a device each and where they share
one. Clients send at a rate (Poisson) that keeps version 1's device busy about half of
the time. Drives the servers by turns with the same requests.
"""

import argparse
import datetime
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import machine
from bench.figures import percentile
from bench.reliability.server import device, with_client
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, poisson, rows_request
from testing.server import Server, serving, simulated_models, sum_of

_BASE_MS, _RATE = 20, 30
_WARM_UP_S = 1.0
_OFF = "off"
# By variant: the share of requests that are copied, and the device of both versions.
_VARIANTS = {_OFF: (0, ""), "a device each": (1, ""), "one device": (1, "shared")}
_CONFIG = """
[labels]
stable = 1
canary = 2
[traffic]
stable = 1
[promotion]
shadow = "canary"
shadow_share = {share}
"""
_RESULTS = ("agree", "differ", "failed", "dropped")


def start(stack: ExitStack, variant: str, folder: Path) -> Server:
    """Start the server of a variant, with its models in a folder."""
    share, name = _VARIANTS[variant]
    simulation = device(_BASE_MS, 0, device=name)
    models = simulated_models(folder, m=simulation)
    (folder / "m" / "2").mkdir()
    (folder / "m" / "2" / "simulated.json").write_text(json.dumps(simulation))
    (folder / "m" / "basket.toml").write_text(_CONFIG.format(share=share))
    server = stack.enter_context(serving(model_dir=models))
    server.wait_until(lambda: server.loaded() == 2, 30)  # noqa: PLR2004
    return server


async def _send(client: Client, seconds: float, seed: int) -> list[Outcome]:
    """Return the outcomes after the warm-up."""
    times = poisson(_RATE, _WARM_UP_S + seconds, seed)
    requests = [rows_request(at_s, number) for number, at_s in enumerate(times)]
    outcomes = await client.open_loop(requests)
    return [one for one in outcomes if one.request.at_s >= _WARM_UP_S]


def row(variant: str, found: list[Outcome], server: Server, busy_s: float) -> str:
    """Return a variant's row of the table."""
    text = server.request("GET", "/metrics").body.decode()
    infer_s = sum_of(text, 'basket_infer_seconds_sum{model="m",version="1"} ')
    copies = [
        int(sum_of(text, f'basket_shadow_rows_total{{model="m",result="{each}"'))
        for each in _RESULTS
    ]
    times_s = [one.latency_s for one in found if one.is_good()]
    cells = (
        *(variant, str(len(found)), str(len(found) - len(times_s))),
        *(f"{1000 * percentile(times_s, each):.1f}" for each in (50, 95, 99)),
        *(f"{infer_s / busy_s:.2f}", " / ".join(map(str, copies))),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table with a row for each variant."""
    parser = argparse.ArgumentParser(prog="python -m bench.shadow")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10, help="for each")
    args = parser.parse_args()
    print(" ".join(["python -m bench.shadow", *sys.argv[1:]]))
    print(datetime.datetime.now(datetime.UTC).date(), machine.describe())
    print(f"Simulated device, {_BASE_MS} ms a batch; {_RATE} requests/s", flush=True)
    seen: dict[str, list[Outcome]] = {each: [] for each in _VARIANTS}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        servers = {
            variant: start(stack, variant, Path(name) / str(number))
            for number, variant in enumerate(_VARIANTS)
        }
        for number in range(args.rounds):
            for variant, server in servers.items():
                seen[variant] += with_client(server, _send, args.seconds, number)
        results = " / ".join(_RESULTS)
        print(
            "\n| shadow | requests | failed | p50 (ms) | p95 (ms) | p99 (ms) | "
            f"device busy | rows of copies: {results} |"
        )
        print("|---|---|---|---|---|---|---|---|")
        busy_s = args.rounds * (_WARM_UP_S + args.seconds)
        for variant, found in seen.items():
            print(row(variant, found, servers[variant], busy_s))
    base, *others = (
        percentile([one.latency_s for one in found if one.is_good()], 99)
        for found in seen.values()
    )
    print("\np99 by that without:", *(f"{each / base:.3f}" for each in others))


if __name__ == "__main__":
    main()
