"""What `make serve` starts, with a stand-in for Gunicorn."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make")


class Clone:
    """A folder with the Makefile, and an environment whose Gunicorn shows its model."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / ".venv" / "bin"
        self.bin.mkdir(parents=True)
        shutil.copy(ROOT / "Makefile", folder)
        self.script("gunicorn", 'printf %s "$BASKET_MODEL" > served; echo "$@" > args')

    def script(self, name, code):
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{code}\n")
        file.chmod(0o755)

    def make(self, *args, cwd, **environ):
        """Run make in `cwd`, as a shell there would, without an installation."""
        return subprocess.run(
            [MAKE, "-o", ".venv/serve.done", *args],
            check=False,
            cwd=cwd,
            env={**os.environ, "PWD": str(cwd), **environ},
            capture_output=True,
            text=True,
        )

    def served(self, model, *args, cwd):
        """Return what BASKET_MODEL is."""
        made = self.make(*args, "serve", f"MODEL={model}", cwd=cwd)
        assert made.returncode == 0, made.stderr
        return (self.folder / "served").read_text()


@pytest.fixture(name="clone")
def _clone(tmp_path):
    return Clone(tmp_path / "the clone's $folder")


@pytest.fixture(name="caller")
def _caller(tmp_path):
    folder = tmp_path / "caller"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("in_clone", [False, True])
@pytest.mark.parametrize(
    "name", ["my.keras", 'it\'s "my" model, $HOME #1.keras', "a$(b.keras"]
)
def test_file_of_the_callers_folder_comes_first(clone, caller, name, in_clone):
    """Also beside one of that name in the clone, and with any characters."""
    (caller / name).touch()
    if in_clone:
        (clone.folder / name).touch()
    for model in (name, str(caller / name)):
        served = clone.served(model, "-C", clone.folder, cwd=caller)
        assert served == str(caller / name)


def test_file_that_only_the_clone_has_is_found_from_another_folder(clone, caller):
    """Without one anywhere, the error names the caller's folder."""
    (clone.folder / "my.keras").touch()
    served = clone.served("my.keras", "-C", clone.folder, cwd=caller)
    assert served == str(clone.folder / "my.keras")
    served = clone.served("none.keras", "-C", clone.folder, cwd=caller)
    assert served == str(caller / "none.keras")


def test_file_is_found_from_the_clone(clone):
    """Without -C the caller's folder is the clone."""
    (clone.folder / "my.keras").touch()
    served = clone.served("my.keras", cwd=clone.folder)
    assert served == str(clone.folder / "my.keras")
