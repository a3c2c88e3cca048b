"""What requests with pictures cost a real server, in CPU time and memory."""

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from testing.clients import in_parallel
from testing.memory import peak_mib_of
from testing.pictures import flat_webp, form, many_scans, picture, saved
from testing.server import serving, wait_until

SIDE = 224
IMAGE = f"""[image]
size = [{SIDE}, {SIDE}]
mode = "RGB"
scale = "none"
interpolation = "bilinear"
"""
# CPU seconds that one request may take; twice that, as other processes run too.
MAX_CPU_S = 2 * 1.5
MAX_MIB = 200
# 34 bytes each and 40 megapixels: 27 s of a core, before there was a limit.
BOMB = form(*[flat_webp(16_000, 2_490)] * 64)
# As much as a request may take.
COSTLY = form(*[flat_webp(1_180, 960)] * 60)
SMALL = form(saved(picture(width=300, height=200)))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    version = folder / "till" / "1"
    version.mkdir(parents=True)
    simulation = {"base_ms": 0, "input_shape": [SIDE, SIDE, 3], "outputs": 3}
    (version / "simulated.json").write_text(json.dumps(simulation))
    (version.parent / "basket.toml").write_text(IMAGE)
    with serving("--threads=20", model_dir=str(folder)) as server:
        assert post(server, *SMALL).status == 200
        yield server


def post(server, body, headers, **more):
    return server.request("POST", "/predict", body, {**headers, **more})


def cpu_s(server) -> float:
    """Return the CPU seconds of the worker so far."""
    (pid,) = server.workers()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_form_of_large_webps_is_refused_at_once(server):
    """A form of 64 WebPs of 40 megapixels in 7 KB takes no time and no memory."""
    (pid,) = server.workers()
    before = cpu_s(server)
    with peak_mib_of(pid) as peak:
        response = post(server, *BOMB)
    assert response.status == 413
    assert response.json()["error"].startswith("picture[0]: a lossless WebP of 39.8 ")
    assert cpu_s(server) - before < 0.5
    assert peak() < 50


def test_jpegs_of_many_scans_are_refused_at_once(server):
    """64 progressive JPEGs of 64 scans are refused before any is decoded."""
    files = form(*[many_scans(2_000, 1_500)] * 64)
    before = cpu_s(server)
    response = post(server, *files)
    assert response.status == 413
    assert "JPEG of 64 scans" in response.json()["error"]
    assert cpu_s(server) - before < 0.5


@pytest.mark.parametrize(
    "files",
    [
        [flat_webp(1_180, 960)] * 60,
        [flat_webp(4_032, 3_024)] * 5,
        [many_scans(1_000, 1_000)] * 22,
    ],
    ids=["60 WebPs", "5 large WebPs", "22 JPEGs of 64 scans"],
)
def test_costliest_requests_stay_within_the_aim(server, files):
    """A request just below its limit takes bounded CPU time and memory."""
    (pid,) = server.workers()
    before = cpu_s(server)
    with peak_mib_of(pid) as peak:
        response = post(server, *form(*files))
    assert response.status == 200, response.body
    assert 0.1 < cpu_s(server) - before < MAX_CPU_S
    assert peak() < MAX_MIB


def test_disconnect_stops_decoding(server):
    """After a disconnect only the picture under way is decoded."""
    before = cpu_s(server)
    assert post(server, *COSTLY).status == 200
    whole_s = cpu_s(server) - before
    abandoned = 'basket_rejected_total{reason="abandoned"}'
    count = server.metric(abandoned)
    before = cpu_s(server)
    body, headers = COSTLY
    head = "POST /predict HTTP/1.1\r\nHost: localhost\r\n" + "".join(
        f"{name}: {value}\r\n"
        for name, value in {**headers, "Content-Length": len(body)}.items()
    )
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall(head.encode() + b"\r\n" + body)
        wait_until(lambda: cpu_s(server) - before > whole_s / 4, 60)
    server.wait_until(lambda: server.metric(abandoned) == count + 1, 60)
    assert cpu_s(server) - before < whole_s * 3 / 4


def test_deadline_stops_decoding(server):
    """After the request's deadline only the picture under way is decoded."""
    before = cpu_s(server)
    assert post(server, *COSTLY).status == 200
    whole_s = cpu_s(server) - before
    before = cpu_s(server)
    response = post(server, *COSTLY, **{"X-Request-Timeout-Ms": "50"})
    assert response.status == 504
    assert cpu_s(server) - before < whole_s / 2


def test_small_pictures_are_answered_while_costly_forms_are_decoded(server):
    """Twenty costly forms at once leave threads for the pictures of others."""
    costly = form(*[flat_webp(1_180, 960)] * 20)
    statuses = []

    def send(_: int) -> None:
        statuses.append(post(server, *costly).status)

    flood = threading.Thread(target=in_parallel, args=(send, 20))
    flood.start()
    answered = 0
    while flood.is_alive():
        assert post(server, *SMALL).status == 200
        answered += len(statuses) < 20
    flood.join()
    assert answered
    assert set(statuses) == {200, 503}
