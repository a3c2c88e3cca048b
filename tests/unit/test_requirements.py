"""What Basket needs installs on a machine that has Python and no compiler."""

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Ray's wheel is for manylinux by its name, and for any Linux by its own WHEEL file.
PUBLISHED_AS_LINUX = {"ray"}


def test_no_package_was_built_here():
    """Each comes as a wheel from its makers; one built here is not for manylinux."""
    built = [
        each.name
        for each in distributions()
        for line in (each.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag: ") and line.rpartition("-")[2].startswith("linux_")
    ]
    assert set(built) <= PUBLISHED_AS_LINUX


def _script(file, *lines):
    file.write_text("\n".join(("#!/bin/sh", *lines, "")))
    file.chmod(0o755)
    return file


def _make_venv(folder, *args, **kwargs):
    """Run make for an environment that is not there."""
    asked = ["make", *args, f"VENV={folder}/venv", f"{folder}/venv/bin/python"]
    return subprocess.run(
        asked, check=False, cwd=ROOT, capture_output=True, text=True, **kwargs
    )


def test_the_first_python_that_starts_is_taken(tmp_path):
    """A python3.11 that is only the name of one does not keep make from a newer one."""
    _script(tmp_path / "python3.11", "exit 127")
    newer = _script(tmp_path / "python3.12", "exit 0")
    tools = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert f"{newer} -m venv" in _make_venv(tmp_path, "-n", env=tools).stdout


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_a_python_that_basket_does_not_run_on_is_named(tmp_path, version):
    """Versions that TensorFlow or Basket can't use end make, which says what can."""
    code = f"import sys; sys.version_info = {version}; exec(sys.argv[2])"
    python = _script(tmp_path / "python", f"exec {sys.executable} -c '{code}' \"$@\"")
    made = _make_venv(tmp_path, f"PYTHON={python}")
    assert made.returncode == 2
    assert "Basket needs Python 3.11, 3.12 or 3.13" in made.stdout
