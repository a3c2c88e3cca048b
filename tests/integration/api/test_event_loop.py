"""Requests on the event loop of a real server whose worker has two threads."""

import contextlib
import gzip
import http.client
import json
import select
import socket

import pytest

from testing.clients import Client, in_parallel
from testing.server import serving, simulated_models

SLOW = {"base_ms": 150, "per_row_ms": 0, "input_shape": [4], "outputs": 4}
QUICK = {**SLOW, "base_ms": 1}
WIDE = {"base_ms": 1, "per_row_ms": 0, "input_shape": [1 << 20], "outputs": 1 << 20}
CLIENTS = 20
# A few in JSON are more than the kernel buffers for a client that does not read.
ROW = [0.5] * (1 << 20)


@pytest.fixture(name="server", scope="module")
def _server(tmp_path_factory):
    models = {"slow": SLOW, "quick": QUICK, "wide": WIDE}
    folder = simulated_models(tmp_path_factory.mktemp("models"), **models)
    with serving("--threads=2", model_dir=folder, default_model="slow") as server:
        yield server


def post(model, body, header="Content-Type: application/json"):
    """Return a whole request."""
    line = f"POST /v1/models/{model}:predict HTTP/1.1"
    lines = [line, "Host: localhost", f"Content-Length: {len(body)}", header]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_batch_has_more_requests_than_there_are_threads(server):
    """Clients on keep-alive connections share batches that no thread waits for."""
    rounds = 3
    sizes = [[0] * rounds for _ in range(CLIENTS)]

    def work(place):
        with Client(server.port) as client:
            for number in range(rounds):
                row = [float(place), float(number), 0.0, 0.0]
                client.send([row])
                reply = client.receive()
                assert reply.json() == {"predictions": [row]}
                sizes[place][number] = int(reply.headers["X-Batch-Size"])

    in_parallel(work, CLIENTS)
    assert max(map(max, sizes)) > 2


def test_slow_readers_do_not_block_other_clients(server):
    """While more clients than threads read no response, another one is answered."""
    small = post("quick", b'{"instances": [[1, 2, 3, 4]]}')
    body = gzip.compress(json.dumps({"instances": [ROW] * 2}).encode(), 1)
    large = post("wide", body, "Content-Encoding: gzip")
    padded = post("quick", b'{"instances": [[1, 2, 3, 4]]}' + b" " * 100_000)
    with (
        socket.create_connection(("127.0.0.1", server.port), 20) as kept,
        contextlib.ExitStack() as stack,
    ):

        def ask(request=small):
            kept.sendall(request)
            reply = http.client.HTTPResponse(kept)
            reply.begin()
            assert json.load(reply) == {"predictions": [[1.0, 2.0, 3.0, 4.0]]}

        ask()
        others = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in others:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", server.port))
            each.sendall(large)
        waiting = others
        while waiting:
            begun, _, _ = select.select(waiting, [], [], 15)
            assert begun
            waiting = [each for each in waiting if each not in begun]
            ask()
        for each in others:
            assert each.recv(12) == b"HTTP/1.1 200"
        for _ in range(20):
            ask()
        # This body is decoded in a thread.
        ask(padded)
