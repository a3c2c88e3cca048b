"""The commands and the code of docs/capture.md."""

import contextlib
import io
import json
import re
import shutil

import numpy as np
import pytest

from testing.server import ROOT, serving, wait_until
from tests.support import documents
from tests.support.documents import run

PAGE = ROOT / "docs" / "capture.md"
READ, STRINGS = documents.blocks(PAGE, "python")
CODE = "def predict(model, batch):\n    return [text.upper() for text in batch]\n"


@pytest.fixture(name="here", scope="module")
def _here(tmp_path_factory):
    """Return a folder with requests that were captured of the demo model, and texts."""
    here = tmp_path_factory.mktemp("here")
    models = here / "models"
    shutil.copytree(ROOT / "models" / "digits", models / "digits")
    (models / "words" / "1").mkdir(parents=True)
    (models / "words" / "1" / "service.py").write_text(CODE)
    for name in ("digits", "words"):
        with (models / name / "basket.toml").open("a") as config:
            (capture,) = documents.blocks(PAGE, "toml")
            config.write("\n" + capture.replace("share = 0.01", "share = 1.0"))
    settings = {"model_dir": str(models), "user_code": "on", "default_model": "digits"}
    captured = here / "captured"
    with serving("--threads=4", capture_dir=str(captured), **settings) as server:
        for digit in range(3):
            picture = (ROOT / "samples" / f"{digit}.json").read_bytes()
            assert server.request("POST", "/predict", picture).status == 200
        body = b'{"instances": ["a", "\\u017c", ""]}'
        assert server.request("POST", "/v1/models/words:predict", body).status == 200
    wait_until(lambda: len([*captured.glob("*/*.npz")]) == 2, 10)
    return here


def test_numpy_lines_read_the_demo_models_requests(here, monkeypatch):
    """They print the shapes, and the digits that the model recognized."""
    monkeypatch.chdir(here)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(READ, "capture.md", "exec"), {})
    # A time, the shapes of images and scores, and the digits.
    expected = r"(20\S+) \(3, 8, 8, 1\) \(3, 10\) \[0 1 2\]\n"
    assert re.fullmatch(expected, printed.getvalue())


def test_lines_for_strings_read_texts(here):
    """They return the JSON of each instance, as bytes."""
    known = {"np": np}
    exec(compile(STRINGS, "capture.md", "exec"), known)
    (file,) = (here / "captured" / "words").glob("*.npz")
    with np.load(file, allow_pickle=False) as block:
        found = known["strings"](block, "inputs/json")
    assert [json.loads(each) for each in found] == ["a", "ż", ""]


def test_command_shows_captured_requests(here):
    """It prints the signature with the names that the NumPy lines use."""
    (command,) = documents.commands(PAGE)
    printed = run(
        command.replace("=captured", f"={here / 'captured'}"),
        BASKET_MODEL_DIR=str(here / "models"),
    )
    assert "digits: 3 requests in 1 files" in printed
    assert "image float32 (8, 8, 1) -> digit float32 (10,)" in printed
