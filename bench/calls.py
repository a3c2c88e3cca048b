"""python -m bench.calls: the functions that a small request calls on the event loop.

A server's worker counts each call on the event loop's thread with sys.setprofile; a
coroutine counts whenever it goes on. One client sends its requests one after the other
over one connection, so that what is done once for a batch counts for each request.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import grpc
import numpy as np

from bench.report import header, table
from testing.grpc_messages import INFER, request_of
from testing.pictures import picture, saved
from testing.server import (
    ROOT,
    Server,
    free_port,
    serving,
    simulated_models,
    wait_until,
)

_WARM_UP_REQUESTS = 200
_REQUESTS = 200
_ROUNDS = 3
# So many requests may be without a call that all others make.
_SELDOM = 10
_KINDS = ("python", "c")
# Names the folder in which a worker leaves its counts at SIGWINCH.
_FOLDER = "BENCH_CALLS_FOLDER"
_ROW = np.arange(64, dtype=np.float32) / 64
_SIDE = 32
# Basket's own configuration, in whose workers the thread that serves counts.
_CONFIG = """
import runpy

globals().update(runpy.run_path("gunicorn.conf.py"))
begin = post_worker_init


def post_worker_init(worker):
    from bench.calls import count_calls

    begin(worker)
    count_calls()
"""
_IMAGE = f'[image]\nsize = [{_SIDE}, {_SIDE}]\nmode = "RGB"\nscale = "0..1"\n'


def count_calls() -> None:
    """Count the calls on this thread by name and kind; n.json at the n-th SIGWINCH."""
    python: Counter[CodeType] = Counter()
    builtin: Counter[str] = Counter()
    snapshots = itertools.count()

    def count(frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            python[frame.f_code] += 1
        elif event == "c_call":
            builtin[function.__qualname__] += 1

    def write(*_: object) -> None:
        sys.setprofile(None)
        named = Counter(
            {f"{each.co_filename}:{each.co_qualname}": n for each, n in python.items()}
        )
        file = Path(os.environ[_FOLDER]) / f"{next(snapshots)}.json"
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"python": named, "c": builtin}))
        new.rename(file)
        sys.setprofile(count)

    signal.signal(signal.SIGWINCH, write)
    sys.setprofile(count)


@dataclass(frozen=True)
class Calls:
    """Calls for one request, by name."""

    python: Counter[str]
    c: Counter[str]


class CountingServer:
    """A server that counts, and a client that sends requests one after the other."""

    def __init__(self, server: Server, grpc_port: int, folder: Path) -> None:
        self._server = server
        self._grpc_port = grpc_port
        self._folder = folder
        self._snapshots = itertools.count()

    def calls(self, case: str) -> Calls:
        """Return the calls for one request of a case of `CASES`."""
        with _CASES[case](self._server.port, self._grpc_port) as send:
            for _ in range(_WARM_UP_REQUESTS):
                send()
            snapshots = [self._snapshot()]
            for _ in range(_ROUNDS):
                for _ in range(_REQUESTS):
                    send()
                snapshots.append(self._snapshot())
        rounds = itertools.pairwise(snapshots)
        found = [[_for_one(a[kind], b[kind]) for kind in _KINDS] for a, b in rounds]
        # On a busy machine a round may have sweeps and more wake-ups.
        return Calls(*(reduce(and_, each) for each in zip(*found, strict=True)))

    def _snapshot(self) -> dict[str, dict[str, int]]:
        file = self._folder / f"{next(self._snapshots)}.json"
        (worker,) = self._server.workers()
        os.kill(worker, signal.SIGWINCH)
        wait_until(file.exists, 60)
        found: dict[str, dict[str, int]] = json.loads(file.read_text())
        return found


def _for_one(before: dict[str, int], after: dict[str, int]) -> Counter[str]:
    """Return the calls for one request, rounded down: some run once in a while."""
    found = Counter(
        {
            name: (n - before.get(name, 0) + _SELDOM) // _REQUESTS
            for name, n in after.items()
        }
    )
    return +found


@contextlib.contextmanager
def counting() -> Iterator[CountingServer]:
    """Serve a model `m` of 64 floats and a model `pictures`, over HTTP and gRPC."""
    with tempfile.TemporaryDirectory() as folder:
        models, counts, grpc_port = Path(folder) / "models", Path(folder), free_port()
        device = {"base_ms": 0, "per_row_ms": 0, "outputs": 10}
        shapes = {"m": [_ROW.size], "pictures": [_SIDE, _SIDE, 3]}
        simulated_models(
            models, **{name: device | {"input_shape": shapes[name]} for name in shapes}
        )
        (models / "pictures" / "basket.toml").write_text(_IMAGE)
        config = Path(folder) / "gunicorn.conf.py"
        config.write_text(_CONFIG)
        with serving(
            f"--config={config}",
            "--keep-alive=60",
            model_dir=str(models),
            default_model="m",
            grpc_bind=f"127.0.0.1:{grpc_port}",
            environ={_FOLDER: str(counts)},
        ) as server:
            server.wait_until_loaded()
            yield CountingServer(server, grpc_port, counts)


# Sends one request, and waits for its answer.
_Send = Callable[[], None]


@contextlib.contextmanager
def _posting(
    port: int, path: str, body: bytes, headers: Mapping[str, str], id_header: str = ""
) -> Iterator[_Send]:
    """Yield what posts a body over one connection, with another id each time.

    Head and body are sent at once, so that the server always reads them at once.
    """
    own = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in own.items())
    numbers = itertools.count()

    def send() -> None:
        each = f"{id_header}: client-{next(numbers):08}\r\n" if id_header else ""
        connection.sendall(f"POST {path} HTTP/1.1\r\n{head}{each}\r\n".encode() + body)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        text = reply.read()
        assert reply.status == http.HTTPStatus.OK, text

    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        yield send


def _json(port: int, grpc_port: int, id_header: str = "") -> Any:
    del grpc_port
    body = json.dumps({"instances": [_ROW.tolist()]}).encode()
    headers = {"Content-Type": "application/json"}
    return _posting(port, "/predict", body, headers, id_header)


def _json_with_ids(port: int, grpc_port: int) -> Any:
    return _json(port, grpc_port, "X-Request-Id")


def _v2_binary(port: int, grpc_port: int) -> Any:
    del grpc_port
    tensor = {
        "name": "input",
        "shape": [1, _ROW.size],
        "datatype": "FP32",
        "parameters": {"binary_data_size": _ROW.nbytes},
    }
    head = json.dumps(
        {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return _posting(port, "/v2/models/m/infer", head + _ROW.tobytes(), headers)


def _jpeg(port: int, grpc_port: int) -> Any:
    del grpc_port
    body = saved(picture("RGB", _SIDE, _SIDE), "JPEG", quality=90)
    headers = {"Content-Type": "image/jpeg"}
    return _posting(port, "/predict?model=pictures", body, headers)


@contextlib.contextmanager
def _grpc(port: int, grpc_port: int) -> Iterator[_Send]:
    del port
    message = request_of(INFER, _ROW[np.newaxis])
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        call = channel.unary_unary(INFER)
        yield lambda: call(message, timeout=60)


_CASES: dict[str, Callable[[int, int], Any]] = {
    "JSON": _json,
    "JSON, each with an id": _json_with_ids,
    "V2, binary tensors": _v2_binary,
    "JPEG, 32 x 32": _jpeg,
    "gRPC, ModelInfer": _grpc,
}
CASES = tuple(_CASES)


def _short(name: str) -> str:
    """Return a function's name with its module's path from its package's root."""
    file, _, function = name.rpartition(":")
    file = file.removeprefix(str(ROOT)).rpartition("site-packages")[2]
    return f"{file.lstrip('/')} {function}"


def main() -> None:
    """Print the calls of each case by name, and a table of their numbers."""
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--case", choices=CASES, help="default: all")
    case = parser.parse_args().case
    chosen = (case,) if case else CASES
    numbers = []
    with counting() as server:
        for each in chosen:
            calls = server.calls(each)
            print(f"\n{each}: Python")
            for name, count in sorted(calls.python.items()):
                print(f"  {count:3} {_short(name)}")
            print(f"{each}: C")
            for name, count in sorted(calls.c.items()):
                print(f"  {count:3} {name}")
            numbers.append((each, calls.python.total(), calls.c.total()))
    print()
    print(header(["bench.calls", *(["--case", case] if case else [])]))
    print()
    print(*table(("request", "Python functions", "C functions"), numbers), sep="\n")


if __name__ == "__main__":
    main()
