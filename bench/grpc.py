"""python -m bench.grpc: gRPC beside JSON, and beside Triton's gRPC.

Serves a model that returns its rows of 4,096 float32 values, by Basket over HTTP and
gRPC, and by Triton (PyTriton, a Python function). h2load, of Debian's package
nghttp2-client, sends each kind of request over 32 connections, one after the other on
each, by turns. Before each round a client checks the answers; all responses have to be
as long as a right one.
"""

import argparse
import contextlib
import json
import re
import shutil
import statistics
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tritonclient import grpc as triton

from app.grpc.messages import message_class
from bench import machine
from bench.peers.environments import python_of
from bench.report import header, table
from testing.server import free_port, running, serving, simulated_models

_WIDTH = 4096
_VALUES_BYTES = 4 * _WIDTH
_SIMULATION = {"base_ms": 0, "input_shape": [_WIDTH], "outputs": _WIDTH}
_MAX_BATCH_SIZE = 64
_CONNECTIONS = 32
_WARM_UP_S = 1
_APPS = Path(__file__).parent / "peers" / "apps"
_READY_WITHIN_S = 120
_JSON, _SHORT_JSON = "JSON", "JSON, shortest digits"
_INFER, _PREDICT, _TRITON = "ModelInfer", "Predict", "Triton, ModelInfer"
_INFER_PATH = "/inference.GRPCInferenceService/ModelInfer"
_PREDICT_PATH = "/tensorflow.serving.PredictionService/Predict"


class Kind(NamedTuple):
    """A kind of request: where it goes, its body, and h2load's options."""

    url: str
    body: Path
    options: tuple[str, ...]


class Ports(NamedTuple):
    """Where the servers listen."""

    http: int
    grpc: int
    triton: int


def _framed(message: Any) -> bytes:
    """Return a message as it is in the body of a call."""
    sent: bytes = message.SerializeToString()
    return struct.pack(">BI", 0, len(sent)) + sent


def bodies(row: np.ndarray[Any, Any]) -> dict[str, bytes]:
    """Return the body of each kind of request for one row."""
    infer = message_class("inference.ModelInferRequest")(model_name="m")
    infer.inputs.add(name="input", datatype="FP32", shape=[1, _WIDTH])
    infer.raw_input_contents.append(row.tobytes())
    predict = message_class("tensorflow.serving.PredictRequest")()
    predict.model_spec.name = "m"
    tensor = predict.inputs["input"]
    tensor.dtype, tensor.tensor_content = 1, row.tobytes()
    for size in (1, _WIDTH):
        tensor.tensor_shape.dim.add(size=size)
    # A float32 has up to 9 digits; as a float of Python, up to 17.
    short = ",".join(str(value) for value in row)
    return {
        _JSON: json.dumps({"instances": [row.tolist()]}).encode(),
        _SHORT_JSON: f'{{"instances":[[{short}]]}}'.encode(),
        _INFER: _framed(infer),
        _PREDICT: _framed(predict),
    }


def kinds(folder: Path, ports: Ports, row: np.ndarray[Any, Any]) -> dict[str, Kind]:
    """Write the bodies, and return all kinds of requests."""
    call = "--header=content-type: application/grpc", "--header=te: trailers"
    plain = "--h1", "--header=content-type: application/json"
    made = bodies(row)
    found = {}
    for name, port, path, options in (
        (_JSON, ports.http, "/v1/models/m:predict", plain),
        (_SHORT_JSON, ports.http, "/v1/models/m:predict", plain),
        (_PREDICT, ports.grpc, _PREDICT_PATH, call),
        (_INFER, ports.grpc, _INFER_PATH, call),
        (_TRITON, ports.triton, _INFER_PATH, call),
    ):
        body = folder / f"{len(found)}"
        body.write_bytes(made[_INFER if name == _TRITON else name])
        found[name] = Kind(f"http://127.0.0.1:{port}{path}", body, options)
    return found


def drive(kind: Kind, seconds: int) -> float:
    """Return the requests/s that are answered.

    Raises:
        AssertionError: a request failed, or a response was too short.
    """
    command = [
        *("h2load", "--threads=1", f"--clients={_CONNECTIONS}", "-m1"),
        *(f"--duration={seconds}", f"--warm-up-time={_WARM_UP_S}"),
        *kind.options,
        *(f"--data={kind.body}", kind.url),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    rate = float(_found(r"finished in .*?, ([\d.]+) req/s", ran.stdout))
    answered = int(_found(r"(\d+) succeeded", ran.stdout))
    failed = int(_found(r"(\d+) failed", ran.stdout))
    received = int(_found(r"\((\d+)\) data", ran.stdout))
    assert (failed, answered > 0) == (0, True), ran.stdout
    # An error is a short message; the last responses may have come in parts.
    assert received > (answered - _CONNECTIONS) * _VALUES_BYTES, ran.stdout
    return rate


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, text
    return found[1]


def check(ports: Ports, row: np.ndarray[Any, Any]) -> None:
    """Check that both gRPC servers return the row.

    Raises:
        AssertionError: one does not.
    """
    for port in (ports.grpc, ports.triton):
        with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
            given = triton.InferInput("input", [1, _WIDTH], "FP32")
            given.set_data_from_numpy(row[np.newaxis])
            answer = client.infer("m", [given]).as_numpy("output")
            assert np.array_equal(answer, row[np.newaxis]), port


@contextlib.contextmanager
def serving_all(folder: Path, workers: int, instances: int) -> Iterator[Ports]:
    """Start Basket with so many workers, and Triton with so many instances."""
    python, http, grpc = python_of("nvidia-pytriton"), free_port(), free_port()
    environ = {
        "HTTP_PORT": str(http),
        "GRPC_PORT": str(grpc),
        "WIDTH": str(_WIDTH),
        "MAX_BATCH_SIZE": str(_MAX_BATCH_SIZE),
        "INSTANCES": str(instances),
        # Triton's Python needs the library of the Python whose modules it imports.
        "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR"),
    }
    peer = running(
        *([str(python), "pytriton_app.py"], http),
        ready=False,
        check_exit=False,
        own_session=True,
        root=_APPS,
        environ=environ,
    )
    own = free_port()
    models = simulated_models(folder / "models", m=_SIMULATION)
    basket = serving(
        f"--workers={workers}", model_dir=models, grpc_bind=f"127.0.0.1:{own}"
    )
    with peer as other, basket as server:

        def is_ready() -> bool:
            with contextlib.suppress(OSError):
                return other.request("GET", "/v2/models/m/ready").status == 200  # noqa: PLR2004
            return False

        other.wait_until(is_ready, _READY_WITHIN_S)
        server.wait_until_ready(workers)
        yield Ports(server.port, own, grpc)


def main() -> None:
    """Print a table with a row for each kind of request."""
    parser = argparse.ArgumentParser(prog="python -m bench.grpc")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="for each rate")
    parser.add_argument("--workers", type=int, default=1, help="of Basket")
    parser.add_argument("--instances", type=int, default=1, help="of Triton's model")
    args = parser.parse_args()
    if not shutil.which("h2load"):
        print("this benchmark wants Debian's package nghttp2-client", file=sys.stderr)
        raise SystemExit(2)
    print(header(["bench.grpc", *sys.argv[1:]], machine.describe()), end="\n\n")
    row = np.random.default_rng(0).random(_WIDTH, np.float32)
    rates: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving_all(Path(folder), args.workers, args.instances) as ports,
    ):
        for number in range(args.rounds):
            check(ports, row)
            by_turns = list(kinds(Path(folder), ports, row).items())
            for name, kind in by_turns[:: -1 if number % 2 else 1]:
                rates.setdefault(name, []).append(drive(kind, args.seconds))
                print(f"{name}: {rates[name][-1]:.0f} requests/s", flush=True)
    print()
    rows = [line_of(name, rates) for name in sorted(rates)]
    heading = ("request", "requests/s", "in the rounds", "of ModelInfer", "in each")
    print(*table(heading, rows), sep="\n")


def line_of(name: str, rates: dict[str, list[float]]) -> tuple[str, ...]:
    """Return a kind's requests/s and share of ModelInfer's: the median, and a range."""
    pairs = zip(rates[name], rates[_INFER], strict=True)
    shares = [rate / other for rate, other in pairs]
    return name, *_spread(rates[name], ".0f"), *_spread(shares, ".2f")


def _spread(values: list[float], form: str) -> tuple[str, str]:
    """Return the median and the range."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:{form}}", f"{low:{form}} to {high:{form}}"


if __name__ == "__main__":
    main()
