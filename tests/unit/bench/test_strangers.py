"""The requests of bench.strangers, and the figures of processes."""

import gzip
import io
import json
import os
import subprocess
import sys
import time
from itertools import islice

import numpy as np
import pytest
from PIL import Image

from bench.strangers import bodies
from bench.strangers.attacks import ATTACKS
from bench.strangers.run import polite_requests
from testing.pictures import picture, saved
from testing.processes import cpu_s, family, memory_mib

# The others are a test of their own.
SMALL = [attack for attack in ATTACKS if not attack.name.startswith("honest")]


@pytest.fixture
def small(monkeypatch):
    """Let all bodies be of a few rows."""
    monkeypatch.setattr(bodies, "_UNPACKED_BYTES", 40)
    monkeypatch.setattr(bodies, "_GOOD_ROWS", 2)
    monkeypatch.setattr(bodies, "LARGE_ROW", 4)
    monkeypatch.setattr(bodies, "_SIDES", (64, 40))
    bodies._rows.cache_clear()
    yield
    bodies._rows.cache_clear()


def unpacked(request):
    is_packed = "gzip" in request.headers
    return gzip.decompress(request.body) if is_packed else request.body


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("attack", SMALL, ids=lambda each: each.name)
def test_bodies_are_json_or_forms(attack):
    """JSON can be parsed, and forms hold 64 files."""
    request = attack.request()
    if request.content_type == "application/json":
        assert isinstance(json.loads(unpacked(request)), dict)
    else:
        assert unpacked(request).count(b"filename=") == 64


@pytest.mark.usefixtures("small")
def test_good_rows_fit_the_digits_model():
    """Each row has the shape (8, 8, 1)."""
    rows = json.loads(unpacked(bodies.good_rows()))["instances"]
    assert np.shape(rows) == (2, 8, 8, 1)


@pytest.mark.usefixtures("small")
def test_honest_bodies_hold_the_same_floats():
    """Rows, columns and V2 have the same values in the shape of the large model."""
    rows = json.loads(bodies.floats(100).body)["instances"]
    (tensor,) = json.loads(bodies.floats_v2(100).body)["inputs"]
    assert json.loads(bodies.floats(100, b"inputs").body)["inputs"] == rows
    assert tensor["shape"] == [*np.shape(rows)] == [len(rows), 4]
    assert tensor["data"] == np.ravel(rows).tolist()


def test_progressive_jpeg_gets_more_scans_and_keeps_its_pixels():
    """The last scan is repeated, and the picture can still be decoded."""
    jpeg = saved(picture(), "JPEG", progressive=True)
    more = bodies.with_scans(jpeg, 64)
    assert more.count(b"\xff\xda") == 64
    before, after = (np.asarray(Image.open(io.BytesIO(each))) for each in (jpeg, more))
    assert before.shape == after.shape


@pytest.mark.usefixtures("small")
def test_variants_disconnect_or_give_a_deadline():
    """Nobody waits longer than a second for their answer."""
    attacks = [each for each in ATTACKS if each.name.startswith("60 MiB of [0]")]
    plain, impatient, limited = (each.request() for each in attacks)
    assert (plain.disconnect_s, impatient.disconnect_s) == (None, 1.0)
    assert "X-Request-Timeout-Ms: 1000\r\n" in limited.headers
    assert [each.waits_s for each in attacks] == [30, 1, 1]


def test_polite_requests_are_due_at_a_steady_rate():
    """Twenty predictions a second, and five pictures, until the attack has ended."""
    requests = list(islice(polite_requests(lambda: False), 25))
    assert [each.at_s for each in requests if each.tag] == [0, 0.2, 0.4, 0.6, 0.8]
    assert [each.at_s for each in requests if not each.tag][:3] == [0, 0.05, 0.1]
    assert list(polite_requests(lambda: True)) == []


def test_processes_of_a_server_are_found_with_their_time_and_memory():
    """A child of a child belongs to the family; its CPU time counts when it ends."""
    burn = "sum(range(10**7))"
    code = (
        "import subprocess, sys; "
        f"subprocess.run([sys.executable, '-c', '{burn}; print(1, flush=True); input()'"
        "]); print(2, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        pids = family(process.pid)
        used_s = cpu_s(pids)
        assert pids[0] == process.pid
        assert len(pids) == 2
        assert memory_mib(pids, "VmHWM") >= memory_mib(pids) > memory_mib(pids[:1]) > 0
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert family(process.pid) == [process.pid]
        assert cpu_s([process.pid]) >= used_s > 0
        process.communicate(b"\n")
    assert cpu_s([os.getpid()]) >= time.process_time() - 0.05
