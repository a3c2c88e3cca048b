"""What a command says before it serves, or instead of it."""

import os
import subprocess
import sys
from pathlib import Path

from testing.server import ROOT, wait_until

FLASK, GUNICORN = (Path(sys.executable).parent / each for each in ("flask", "gunicorn"))


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


def test_a_configuration_that_gunicorn_has_not_read_is_missed(tmp_path):
    """Started in another folder, where no gunicorn.conf.py is, it says where to."""
    arguments = [f"--chdir={ROOT}", f"--bind=unix:{tmp_path}/socket"]
    log = tmp_path / "log"
    process = subprocess.Popen(
        [GUNICORN, "wsgi:app", *arguments, f"--log-file={log}", "--capture-output"],
        cwd=tmp_path,
        env={**os.environ, "BASKET_MODEL_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    try:
        wait_until(log.exists, 30)
        wait_until(lambda: f"start it in {ROOT}" in log.read_text(), 30)
    finally:
        process.terminate()
        process.wait(30)
