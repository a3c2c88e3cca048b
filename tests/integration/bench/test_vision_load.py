"""Pictures from 128 connections at once, on a simulated device with little memory."""

import http.client
import importlib
import json
import shutil

import pytest
from PIL import Image

from bench.vision.wrk import drive
from testing.clients import in_parallel
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


def test_128_connections_never_exceed_the_memory(server):
    """With 128 clients that never rest, no batch is larger than what fits, ever."""
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


def test_bad_pictures_hurt_no_neighbour(server):
    """Among clients with broken and oversized pictures the others are all served."""
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
def test_wrk_sees_no_errors_and_memory_stays_flat(server, tmp_path):
    """Under wrk with 128 connections all is answered, and memory does not grow."""
    files = [tmp_path / f"{seed}.jpg" for seed in range(3)]
    for seed, file in enumerate(files):
        file.write_bytes(jpeg(seed))
    url = f"http://127.0.0.1:{server.port}/predict"
    load = drive(url, files, CONNECTIONS, 9, server.process.pid)
    assert load.seen.requests > CONNECTIONS
    assert (load.seen.errors, load.seen.not_2xx) == (0, 0)
    assert load.mib_end < load.mib_early + 30


@pytest.mark.parametrize("module", ["__main__", "memory"])
def test_a_load_outlasts_the_first_look_at_memory(monkeypatch, capsys, module):
    """A measurement that would be over when its memory is read is refused."""
    monkeypatch.setattr("sys.argv", ["bench.vision", "--seconds=5"])
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"bench.vision.{module}").main()
    assert end.value.code == 2
    assert "5 is not above 5" in capsys.readouterr().err
