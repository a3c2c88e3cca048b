"""Errors of the commands before a server starts."""

import os
import subprocess
import sys
from pathlib import Path

from testing.server import ROOT, wait_until

FLASK, GUNICORN = (Path(sys.executable).parent / each for each in ("flask", "gunicorn"))


def test_invalid_setting_of_a_command_is_one_line():
    """An invalid setting is one line on stderr, and the command fails."""
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


def test_start_outside_the_repository_warns_of_missing_configuration(tmp_path):
    """Gunicorn without gunicorn.conf.py logs the folder to start it in."""
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
