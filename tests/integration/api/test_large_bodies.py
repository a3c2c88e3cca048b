"""What large and compressed JSON bodies cost a real server: CPU time and memory.

Limits are several times what was measured, as other processes run beside.
"""

import gzip
import json
from pathlib import Path

import pytest

from testing.clients import in_parallel
from testing.memory import peak_mib_of, resident_mib
from testing.server import serving, simulated_models, wait_until

MODELS = {
    "till": {"base_ms": 0, "input_shape": [64], "outputs": 2},
    "long": {"base_ms": 0, "input_shape": [500_000], "outputs": 2},
}
MIB = 1 << 20
# Most seconds of a core and MiB for a request of 60 MiB that is refused.
MAX_CPU_S = 3.0
MAX_MIB = 300


@pytest.fixture(name="server", scope="module")
def _server(tmp_path_factory):
    folder = simulated_models(tmp_path_factory.mktemp("large"), **MODELS)
    with serving(
        "--threads=20", model_dir=folder, default_model="till", max_batch_size="8"
    ) as server:
        yield server


def cpu_s(server):
    """Return the seconds of a core that the worker has taken."""
    (pid,) = server.workers()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def listed(item, mebibytes=60):
    """Return a body with so many MiB of one item."""
    return b'{"instances": [%b%b]}' % (item * (mebibytes * MIB // len(item)), item[:-1])


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    "make_body",
    [
        pytest.param(lambda: listed(b"[0],"), id="rows of one number"),
        pytest.param(
            lambda: listed(b"[%b]," % b",".join([b"0.25"] * 64)), id="good rows"
        ),
        pytest.param(lambda: listed(b'"",')[:-2] + b",Inf]}", id="strings and Inf"),
        pytest.param(lambda: listed(b"NaN,"), id="NaN"),
        pytest.param(lambda: listed(b"{},"), id="objects"),
        pytest.param(lambda: listed(b"["), id="brackets"),
        pytest.param(
            lambda: b'{"instances": [' + listed(b"0,")[15:], id="one long row"
        ),
    ],
)
def test_large_json_that_is_refused_costs_little(server, make_body, is_packed):
    """Too many rows, or parts, are counted before they become objects."""
    body, headers = make_body(), {}
    if is_packed:
        body, headers = gzip.compress(body, 1), {"Content-Encoding": "gzip"}
    (pid,) = server.workers()
    before = cpu_s(server)
    with peak_mib_of(pid) as peak:
        response = server.request("POST", "/predict", body, headers)
        assert response.status in (400, 413)
        assert peak() < MAX_MIB
    assert cpu_s(server) - before < MAX_CPU_S
    assert server.predict([[0.5] * 64]).status == 200


def test_memory_is_returned_after_large_bodies(server):
    """After 100 bodies of 8 MiB a worker is larger by less than a few of them."""
    values = ",".join(["0.123456789"] * 500_000)
    large = f'{{"instances": [[{values}]]}}'.encode().ljust(8 * MIB)
    path = "/v1/models/long:predict"

    def post(count):
        for _ in range(count):
            assert server.request("POST", path, large).status == 200

    (pid,) = server.workers()
    before = resident_mib(pid)
    in_parallel(lambda _: post(25), 4)
    # About 70 MiB, for the batch whose memory is kept and for each thread's parser.
    # Memory is trimmed a second after the last body.
    wait_until(lambda: resident_mib(pid) < before + 100, 60)


def test_many_rows_at_once_take_bounded_memory(server):
    """Six bodies of 156,504 good rows are refused in the memory of their text."""
    text = json.dumps({"instances": [[0.1] * 64] * 156_504})
    body = gzip.compress(text.encode(), 1)
    headers = {"Content-Encoding": "gzip"}
    (pid,) = server.workers()
    with peak_mib_of(pid) as peak:
        statuses: list[int] = []

        def post(_):
            reply = server.request("POST", "/predict", body, headers)
            statuses.append(reply.status)

        in_parallel(post, 6)
        assert statuses == [413] * 6
        assert peak() < 6 * MAX_MIB
