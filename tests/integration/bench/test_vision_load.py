"""Pictures over 128 connections, on a simulated device with little memory."""

import http.client
import json
import shutil
import threading

import pytest
from PIL import Image

from testing import wrk
from testing.clients import in_parallel
from testing.memory import resident_mib
from testing.pictures import form, picture, saved
from testing.server import serving, simulated_models

CONNECTIONS = 128
ROWS_THAT_FIT = 64
DEVICE = {
    "base_ms": 50,
    "input_shape": [96, 96, 3],
    "outputs": 10,
    "memory_rows": ROWS_THAT_FIT,
}
IMAGE = '[image]\nsize = [96, 96]\nmode = "RGB"\nscale = "-1..1"\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models = simulated_models(folder, till=DEVICE)
    (folder / "till" / "basket.toml").write_text(IMAGE)
    with serving(f"--threads={CONNECTIONS}", model_dir=models) as running:
        yield running


def jpeg(seed):
    return saved(picture("RGB", 320, 240, seed), "JPEG")


def test_batches_fit_into_the_device_under_128_connections(server):
    """No batch has more rows than the device holds, and every request gets a 200."""
    good = [form(jpeg(seed)) for seed in range(4)]
    sizes = []

    def work(place):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for turn in range(4):
            body, headers = good[(place + turn) % len(good)]
            connection.request("POST", "/predict", body, headers)
            reply = connection.getresponse()
            answer = json.loads(reply.read())
            assert reply.status == 200, answer
            sizes.append(int(reply.headers["X-Batch-Size"]))
        connection.close()

    in_parallel(work, CONNECTIONS)
    assert len(sizes) == CONNECTIONS * 4
    assert ROWS_THAT_FIT / 2 < max(sizes) <= ROWS_THAT_FIT
    labels = '{le="%s",model="till",version="1"}'
    batches = server.metric(f"basket_batch_rows_bucket{labels % '+Inf'}")
    fitting = server.metric(f"basket_batch_rows_bucket{labels % '64.0'}")
    assert batches == fitting >= 8


def test_malformed_pictures_fail_alone(server):
    """Malformed and oversized pictures get their errors, all others a 200."""
    bomb = saved(Image.new("1", (10_000, 5_000)))
    kinds = [
        (form(jpeg(0)), 200),
        (form(jpeg(0)[:5000]), 400),
        (form(b"no picture"), 400),
        (form(bomb), 413),
        (form(*[b"x"] * 100), 413),
        (form(jpeg(1), field="other"), 400),
    ]

    def work(place):
        (body, headers), status = kinds[place % len(kinds)]
        for _ in range(3):
            reply = server.request("POST", "/predict", body, headers)
            assert reply.status == status, reply.body
            assert ("error" in reply.json()) is (status != 200)

    in_parallel(work, 48)


@pytest.mark.skipif(
    shutil.which("wrk") is None, reason="Debian's package wrk is wanted"
)
def test_memory_is_flat_under_load(server, tmp_path):
    """Under wrk every request gets a 2xx, and the worker's memory does not grow."""
    bodies = [tmp_path / str(seed) for seed in range(3)]
    for seed, file in enumerate(bodies):
        body, headers = form(jpeg(seed), end="")
        file.write_bytes(body)
    (worker,) = server.workers()
    early_mib = []
    timer = threading.Timer(5, lambda: early_mib.append(resident_mib(worker)))
    timer.start()
    url = f"http://127.0.0.1:{server.port}/predict"
    seen = wrk.drive(url, bodies, headers["Content-Type"], CONNECTIONS, 9)
    timer.join()
    assert seen.rate > CONNECTIONS / 9
    assert (seen.errors, seen.not_2xx) == (0, 0)
    assert resident_mib(worker) < early_mib[0] + 30
