"""Start servers with gRPC, and call them with the clients as they are shipped."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from testing.server import Server, free_port, serving, workers_in

WIDTH = 4
# A device that returns its rows.
ECHO = {"base_ms": 0, "input_shape": [WIDTH], "outputs": WIDTH}
SLOW_MS = 300
SLOW = {"base_ms": SLOW_MS, "input_shape": [WIDTH], "outputs": WIDTH}


@contextlib.contextmanager
def serving_grpc(*args: str, **settings: Any) -> Iterator[tuple[Server, str]]:
    """Run `gunicorn wsgi:app *args` with gRPC; yield it and the address of gRPC.

    All workers listen there by then.
    """
    address, workers = f"127.0.0.1:{free_port()}", workers_in(args)
    with serving(*args, grpc_bind=address, **settings) as server:
        server.wait_until(
            lambda: server.log.read_text().count("gRPC: listening") >= workers, 60
        )
        yield server, address


@contextlib.contextmanager
def triton_client(address: str, **options: Any) -> Iterator[Any]:
    """Open Triton's client."""
    with triton.InferenceServerClient(address, **options) as client:
        yield client


def tensor(array: Any, name: str = "input") -> Any:
    """Return an array as an input of Triton's client."""
    array = np.asarray(array)
    made = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return made


def rows(*firsts: float) -> Any:
    """Return a row for each first value."""
    return np.array([[first] * WIDTH for first in firsts], np.float32)


def infer(client: Any, *firsts: float, model: str = "m", **options: Any) -> Any:
    """Send a row for each first value; return Triton's result."""
    return client.infer(model, [tensor(rows(*firsts))], **options)


def failure(call: Callable[..., Any], *args: Any, **options: Any) -> tuple[str, str]:
    """Call a function that has to fail, by either client; return code and text."""
    try:
        call(*args, **options)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    except InferenceServerException as error:
        return error.status().removeprefix("StatusCode."), error.message()
    raise AssertionError("the call did not fail")


def ignore(result: Any, error: Any) -> None:
    """Take the end of a call that nobody waits for."""
