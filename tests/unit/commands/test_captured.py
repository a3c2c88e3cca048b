"""`models captured`: shows and exports what was captured."""

import json
import stat

import numpy as np
import pytest

from app.capture.blocks import encode
from app.capture.captured import JSON, Captured, grouped
from app.capture.reader import read_captured
from app.capture.ring import Ring, folder_of
from tests.support.commands import run_models


def request(number, version=1, rows=1):
    inputs = {"x": np.full((rows, 2), number, np.float32)}
    inputs["s"] = np.array([b"\xff"] * rows, object)
    outputs = {"y": np.full(rows, np.nan, np.float16)}
    about = (rows, 1e9 + number, f"id-{number}", version, rows, number / 1000)
    return Captured("serving_default", inputs, outputs, "rows", *about)


@pytest.fixture(name="captured")
def _captured(tmp_path):
    """Run the command on a folder with three requests of two versions."""
    root = tmp_path / "captured"
    ring = Ring(folder_of(root, "till"))
    ring.add(encode(grouped([request(1), request(2, rows=3)])), 1_000_000)
    ring.add(encode(grouped([request(60, version=2)])), 1_000_000)

    def run(*args):
        return run_models(tmp_path, "captured", *args, capture_dir=root)

    run.root = root
    return run


def test_table_has_a_line_for_each_version(captured):
    """With requests, rows, latencies and times, then the signatures."""
    status, output = captured("till")
    assert status == 0
    first, heading, *versions, signature = output.splitlines()
    assert first.startswith("till: 3 requests in 2 files, ")
    assert heading.split()[:4] == ["version", "requests", "rows", "median"]
    assert [line.split() for line in versions] == [
        [
            *("1", "2", "4", "1.50", "1.99"),
            *("2001-09-09", "01:46:41", "2001-09-09", "01:46:42"),
        ],
        [
            *("2", "1", "1", "60.00", "60.00"),
            *("2001-09-09", "01:47:40", "2001-09-09", "01:47:40"),
        ],
    ]
    assert signature == (
        "serving_default: x float32 (2,), s string () -> y float16 (): 3 requests"
    )


def test_what_can_not_be_read_is_named(captured):
    """The others are shown."""
    (folder_of(captured.root, "till") / "000000000003.npz").write_text("damaged")
    status, output = captured("till")
    assert status == 0
    assert "note: 000000000003.npz is skipped: it can't be read: " in output
    assert "till: 3 requests in" in output


def test_npz_is_one_file_of_the_same_format(captured, tmp_path):
    """Requests of several blocks are one group; only the owner may read it."""
    target = tmp_path / "all.npz"
    status, output = captured("till", "--export", target)
    assert (status, output) == (0, f"written: {target}, 3 requests\n")
    (group,) = read_captured(target).groups
    assert group.columns["request_id"].tolist() == [b"id-1", b"id-2", b"id-60"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_json_is_a_list_of_requests(captured, tmp_path):
    """Values are as in V1, with bare NaN and b64."""
    target = tmp_path / "all.json"
    assert captured("till", "--export", target)[0] == 0
    first, second, _ = json.loads(target.read_text())
    assert second["outputs"]["y"] == pytest.approx([float("nan")] * 3, nan_ok=True)
    del first["outputs"]
    assert first == {
        **{"time": "2001-09-09T01:46:41.000Z", "request_id": "id-1", "version": 1},
        **{"signature": "serving_default", "batch_rows": 1, "ms": 1.0},
        "inputs": {"x": [[1.0, 1.0]], "s": [{"b64": "/w=="}]},
    }


def test_json_instances_are_exported_as_they_are(captured, tmp_path):
    """Those of a model without tensors."""
    texts = {"json": np.array([b'{"a": NaN}', b"[1]"], object)}
    about = (2, 1e9, "id", 1, 2, 0.5)
    block = encode(grouped([Captured("s", texts, texts, JSON, *about)]))
    Ring(folder_of(captured.root, "words")).add(block, 1_000_000)
    target = tmp_path / "all.json"
    assert captured("words", "--export", target)[0] == 0
    (request,) = json.loads(target.read_text())
    assert request["inputs"][1] == [1]
    assert str(request["outputs"]) == "[{'a': nan}, [1]]"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["none"], "no captured requests of 'none' in "),
        (["till", "--export", "all.csv"], "expected .npz or .json, given all.csv"),
        (["till", "--export", "/proc/none/all.npz"], "can't be written: "),
    ],
    ids=["unknown model", "unknown format", "unwritable"],
)
def test_bad_argument_is_an_error_of_one_line(captured, args, text):
    """The text says what was expected."""
    status, output = captured(*args)
    assert status != 0
    assert text in output


def test_server_that_captures_nothing_is_an_error(tmp_path):
    """The text names the setting."""
    status, output = run_models(tmp_path, "captured", "till")
    assert status == 1
    assert "BASKET_CAPTURE_DIR is not set" in output
