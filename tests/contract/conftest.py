"""The rims: a server of each kind, all with the same models and keys."""

import contextlib
from collections.abc import Iterator

import pytest

from testing.server import Server, free_port, installed, running, serving
from tests.contract.site import ADMIN_KEY, CLIENT_KEY, LIMIT_BYTES, write_models

RIMS = ("event-loop", "shared-model", "uvicorn", "gthread")
# gRPC listens beside Basket's own worker.
WITH_GRPC = RIMS[:2]


@contextlib.contextmanager
def uvicorn(**settings: str) -> Iterator[Server]:
    port = free_port()
    command = [installed("uvicorn"), "wsgi:asgi", f"--port={port}"]
    # It logs no line for a model that is ready, and ends by the signal.
    with running(command, port, ready=False, check_exit=False, **settings) as server:
        server.wait_until_ready(0)
        yield server


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return folder


@contextlib.contextmanager
def serving_rim(name, models, grpc_address):
    """Serve the models over one rim."""
    settings = {
        "model_dir": str(models),
        "default_model": "echo",
        "user_code": "on",
        "api_keys": CLIENT_KEY,
        "admin_keys": ADMIN_KEY,
        "max_body_bytes": str(LIMIT_BYTES),
    }
    if name == "uvicorn":
        with uvicorn(**settings) as server:
            yield server
        return
    args = ["--threads=8"]
    if name == "gthread":
        args.append("--worker-class=gthread")
    if name == "shared-model":
        settings["model_process"] = "shared"
    if name in WITH_GRPC:
        settings["grpc_bind"] = grpc_address
    with serving(*args, **settings) as server:
        yield server
