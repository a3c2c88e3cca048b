"""The engines of BASKET_ENGINE side by side: MobileNetV2, batches of 1, 8 and 64.

Each runs in a process of its own, one after the other; prints a Markdown table. Run
`python -m bench.engines`, with `--quick` for fewer runs, or with `--variants` for other
settings of OpenVINO.
"""

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from app.engines import open_engine
from app.errors import ModelLoadError
from app.settings import Settings

_SIDE = 96
_ROWS = (1, 8, 64)
_RUNS, _QUICK_RUNS = 40, 5
# The first runs build what the others use.
_WARM_UPS = 3
_ENGINES: dict[str, dict[str, Any]] = {"tensorflow": {}, "openvino": {}, "jax": {}}
_VARIANTS: dict[str, dict[str, Any]] = {
    "openvino": {},
    "openvino, hint THROUGHPUT": {"PERFORMANCE_HINT": "THROUGHPUT"},
    "openvino, threads not pinned": {"ENABLE_CPU_PINNING": False},
    "openvino, bfloat16": {"INFERENCE_PRECISION_HINT": "bf16"},
}


def main() -> None:
    """Measure all engines, or one of them for another such process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        folder, engine, config = args.one
        _measure(Path(folder), engine, json.loads(config), quick=args.quick)
        return
    print(f"{datetime.datetime.now(datetime.UTC).date()}, {os.cpu_count()} cores,")
    print(f"Python {platform.python_version()}; MobileNetV2 {_SIDE} x {_SIDE};")
    print("median (fastest) of a batch in ms\n")
    head = "".join(f" {rows} rows |" for rows in _ROWS)
    print(f"| engine |{head} to load (s) | memory (MiB) |")
    print("|---|" + "---|" * (len(_ROWS) + 2), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        _run("--make", folder)
        for name, config in (_VARIANTS if args.variants else _ENGINES).items():
            quick = ["--quick"] if args.quick else []
            engine = name.partition(",")[0]
            cells = _run("--one", folder, engine, json.dumps(config), *quick)
            print(f"| {name} | {cells.strip().splitlines()[-1]}", flush=True)


def _run(*args: str) -> str:
    if args[0] == "--make":
        command = [sys.executable, "-c", _MAKE, args[1]]
    else:
        command = [sys.executable, "-m", "bench.engines", *args]
    ran = subprocess.run(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return ran.stdout.decode()


# With weights of which scores come that differ: engines are compared when they load.
_MAKE = f"""
import sys
import numpy as np
from app.engines.tensorflow.keras_file import keras
from testing.keras_models import tell_apart
model = keras.applications.MobileNetV2(({_SIDE}, {_SIDE}, 3), weights=None)
rows = np.random.default_rng(0).random((8, {_SIDE}, {_SIDE}, 3), np.float32)
tell_apart(keras, model, rows)
model.save(sys.argv[1] + "/model.keras")
"""


def _measure(folder: Path, name: str, config: dict[str, Any], *, quick: bool) -> None:
    """Print one engine's cells of the table."""
    if config:
        import_module("app.engines.openvino.keras_file")._CONFIG.update(config)
    began_at = time.perf_counter()
    try:
        engine = open_engine(folder, Settings(engine=name))
    except ModelLoadError as error:
        print(f"refused: {error} |" + " |" * (len(_ROWS) + 1))
        return
    load_s = time.perf_counter() - began_at
    (spec,) = engine.signatures["serving_default"].inputs
    cells = []
    for rows in _ROWS:
        random = np.random.default_rng(rows)
        batch = {spec.name: random.random((rows, *spec.shape), np.float32)}
        times_ms = []
        for _ in range(_WARM_UPS + (_QUICK_RUNS if quick else _RUNS)):
            began_at = time.perf_counter()
            engine.run(batch)
            times_ms.append((time.perf_counter() - began_at) * 1000)
        warm_ms = times_ms[_WARM_UPS:]
        cells.append(f"{np.median(warm_ms):.1f} ({min(warm_ms):.1f})")
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(" | ".join([*cells, f"{load_s:.0f}", str(memory_mib)]) + " |")


if __name__ == "__main__":
    main()
