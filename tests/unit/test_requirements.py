"""What Basket needs installs on a machine that has Python and no compiler."""

import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path

import pytest

from app.interpreter import is_optimized

ROOT = Path(__file__).parents[2]
# Ray's wheel is for manylinux by its name, and for any Linux by its own WHEEL file.
PUBLISHED_AS_LINUX = {"ray"}
MAKE = shutil.which("make")
OPTIMIZED = "'--prefix=/usr/local' '--enable-optimizations' '--with-lto'"


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
    asked = [MAKE, *args, f"VENV={folder}/venv", f"{folder}/venv/bin/python"]
    return subprocess.run(
        asked, check=False, cwd=ROOT, capture_output=True, text=True, **kwargs
    )


def _chosen_of(folder, **pythons):
    """Return the name that make takes of scripts which stand for Pythons."""
    for name, line in pythons.items():
        _script(folder / name.replace("_", "."), line)
    made = _make_venv(folder, "-n", env={"PATH": str(folder)})
    (line,) = (each for each in made.stdout.splitlines() if each.endswith("/venv"))
    python, _, _ = line.partition(" -m venv ")
    return Path(python).relative_to(folder).name


def test_a_python_that_does_not_start_is_passed_over(tmp_path):
    """A python3.11 that is only the name of one does not keep make from a newer one."""
    assert _chosen_of(tmp_path, python3_11="exit 127", python3_12="exit 0") == (
        "python3.12"
    )


UNOPTIMIZED = '[ "$1" = --version ]'


def test_an_optimized_python_is_preferred(tmp_path):
    """It is taken before another one whose name comes first."""
    assert _chosen_of(tmp_path, python3_11=UNOPTIMIZED, python3_12="exit 0") == (
        "python3.12"
    )


def test_an_unoptimized_python_is_better_than_none(tmp_path):
    """Basket runs on it, too."""
    assert _chosen_of(tmp_path, python3_12=UNOPTIMIZED) == "python3.12"


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local"])
@pytest.mark.parametrize("options", [None, "'--enable-shared'", OPTIMIZED])
def test_pythons_of_distributions_and_with_the_option_are_optimized(
    monkeypatch, prefix, options
):
    """A distribution's Python names only a part of its options."""
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setattr(sysconfig, "get_config_var", {"CONFIG_ARGS": options}.get)
    assert is_optimized() == (prefix == "/usr" or options == OPTIMIZED)


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_a_python_that_basket_does_not_run_on_is_named(tmp_path, version):
    """Versions that TensorFlow or Basket can't use end make, which says what can."""
    code = f"import sys; sys.version_info = {version}; exec(sys.argv[2])"
    python = _script(tmp_path / "python", f"exec {sys.executable} -c '{code}' \"$@\"")
    made = _make_venv(tmp_path, f"PYTHON={python}")
    assert made.returncode == 2
    assert "Basket needs Python 3.11, 3.12 or 3.13" in made.stdout
