"""The command of docs/versions.md that compares two versions."""

import re
import shutil

import pytest

from testing.server import ROOT
from tests.support import documents
from tests.support.documents import run

PAGE = ROOT / "docs" / "versions.md"
FLASK = ".venv/bin/flask --app wsgi models"


def without_numbers(text):
    return re.sub(r"\d+(\.\d+)?", "N", re.sub(r" +", " ", text))


def test_compare_prints_the_lines_shown(tmp_path):
    """Of the demo model and its quantized version; numbers may differ."""
    pytest.importorskip("matplotlib")
    shutil.copytree(ROOT / "models/digits/1", tmp_path / "digits/1")
    run(f"{FLASK} quantize digits --int8 --force", BASKET_MODEL_DIR=str(tmp_path))
    (command,) = [each for each in documents.commands(PAGE) if " compare " in each]
    file = tmp_path / "compared.png"
    # The version shown is refused.
    command = f"{command.replace('compared.png', str(file))} 2>/dev/null || true"
    printed = run(command, BASKET_MODEL_DIR=str(tmp_path)).splitlines()
    blocks = re.findall(r"^```\w*\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    (shown,) = [each for each in blocks if each.startswith("digits version 2 on")]
    assert list(map(without_numbers, printed[:5])) == [
        without_numbers(line) for line in shown.splitlines()[:5]
    ]
    assert f"written: {file}" in printed
    assert file.read_bytes().startswith(b"\x89PNG")
