"""`python -m bench.fuzz --requests 100000`: malformed requests to a new server.

With --grpc they are calls of gRPC.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from bench.fuzz import calls, models
from bench.fuzz.run import fuzz
from bench.report import header
from testing.server import free_port, serving


def main() -> int:
    """Run it; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("--grpc", action="store_true", help="calls over gRPC")
    parser.add_argument("--requests", type=int, default=100_000, help="malformed ones")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    options = parser.parse_args()
    requests, seed = options.requests, options.seed
    command = ["bench.fuzz", f"--requests={requests}", f"--seed={seed}"]
    print(header(command + ["--grpc"] * options.grpc), flush=True)
    began_at, address = time.monotonic(), f"127.0.0.1:{free_port()}"
    settings = calls.SETTINGS if options.grpc else models.SETTINGS
    with tempfile.TemporaryDirectory() as folder:
        models.write_models(Path(folder))
        server = serving(
            models.THREADS, model_dir=folder, grpc_bind=address, **settings
        )
        with server as running:
            if options.grpc:
                report = calls.fuzz(running, address, requests, seed)
            else:
                report = fuzz(running, requests, seed)
    report.show(time.monotonic() - began_at)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
