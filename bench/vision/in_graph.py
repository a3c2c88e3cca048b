"""Where pixels are best scaled: in the request's thread, or in the model's graph.

The same MobileNetV2 twice under wrk, by turns. One takes uint8 rows and scales them in
its graph, as `models fetch` makes it; the other takes float32 rows, four times as
large, that the request thread has scaled. Run `python -m bench.vision.in_graph`.
"""

import argparse
import datetime
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from bench import wrk
from bench.vision.set_ups import basket, fetched, photographs
from bench.vision.wrk import drive

_WARM_UP_S = 6
_CONNECTIONS = 128
_SIDE = 96
_SCALED_BY = ("request thread, float32", "graph, uint8")


def main() -> int:
    """Measure both by turns and print a table."""
    options = _options()
    wrk.require()
    rates: dict[str, list[float]] = {name: [] for name in _SCALED_BY}
    with tempfile.TemporaryDirectory() as folder:
        pictures = photographs(Path(folder) / "pictures")
        inside = fetched(Path(folder) / "inside", "mobilenet_v2", _SIDE)
        outside = _scaled_outside(inside, Path(folder) / "outside")
        for number in range(options.rounds):
            for name, models in zip(_SCALED_BY, (outside, inside), strict=True):
                print(f"round {number + 1} of {options.rounds}: {name} ...", flush=True)
                with basket(models) as server:
                    for seconds in (_WARM_UP_S, options.seconds):
                        load = drive(
                            server.url, pictures, _CONNECTIONS, seconds, server.pid
                        )
                    assert not load.seen.errors + load.seen.not_2xx
                    rates[name].append(load.seen.rate())
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"\n{today}, {os.cpu_count()} cores; {options.seconds} s each\n")
    print("| scaled by | requests/s, median | each round |\n|---|---|---|")
    for name, seen in rates.items():
        each = ", ".join(f"{rate:.0f}" for rate in seen)
        print(f"| {name} | {statistics.median(seen):.0f} | {each} |")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.vision.in_graph")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--seconds", type=int, default=8, help="default: 8")
    return parser.parse_args()


def _scaled_outside(models: Path, folder: Path) -> Path:
    """A copy of the folder of models whose model takes scaled pixels, float32."""
    import keras  # noqa: PLC0415

    shutil.copytree(models, folder)
    (model,) = folder.iterdir()
    file = model / "1" / "model.keras"
    weights = keras.models.load_model(file, compile=False).get_weights()
    bare = keras.applications.MobileNetV2((_SIDE, _SIDE, 3), weights=None)
    bare.set_weights(weights)
    bare.save(file)
    config = model / "basket.toml"
    config.write_text(config.read_text().replace('"none"', '"-1..1"'))
    return folder


if __name__ == "__main__":
    sys.exit(main())
