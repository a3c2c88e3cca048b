"""`flask --app wsgi models` as a process."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.server import ROOT

FLASK = str(Path(sys.executable).parent / "flask")


def test_a_bad_setting_is_one_line():
    """A setting that can't be is named in one line, and the command fails."""
    ran = subprocess.run(
        [FLASK, "--app", "wsgi", "models", "--help"],
        cwd=ROOT,
        env={**os.environ, "BASKET_ENGINE": "abacus"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    expected = "expected tensorflow or jax or openvino"
    assert ran.stderr == f"Error: BASKET_ENGINE='abacus': {expected}\n"
