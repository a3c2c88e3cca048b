"""What `make serve` does before Gunicorn starts, and what Gunicorn gets."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app import port_check

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make")


class Clone:
    """A folder with the Makefile, and an environment whose Gunicorn shows its model."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / ".venv" / "bin"
        self.bin.mkdir(parents=True)
        (folder / "app").mkdir()
        for name in ("Makefile", "app/port_check.py"):
            shutil.copy(ROOT / name, folder / name)
        (folder / "requirements.txt").touch()
        self.script("python", f'exec {sys.executable} "$@"')
        self.script("gunicorn", 'printf %s "$BASKET_MODEL" > served; echo "$@" > args')

    def script(self, name, code):
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{code}\n")
        file.chmod(0o755)

    def make(self, *args, cwd=None, **environ):
        """Run make in `cwd`, as a shell there would."""
        cwd = cwd or self.folder
        # Not as a part of the make that runs the tests, which would add lines.
        outer = {
            name: value
            for name, value in os.environ.items()
            if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
        }
        return subprocess.run(
            [MAKE, *args],
            check=False,
            cwd=cwd,
            env={**outer, "PWD": str(cwd), **environ},
            capture_output=True,
            text=True,
        )

    def served(self, model, *args, cwd):
        """Return what BASKET_MODEL is; nothing is installed."""
        args = ("-o", ".venv/serve.done", *args, "serve", f"MODEL={model}")
        made = self.make(*args, "ARGS=--bind unix:none", cwd=cwd)
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


@pytest.fixture(name="busy")
def _busy():
    """The address of a port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_busy_port_is_said_before_anything_is_installed(clone, busy):
    """The text has the address, the reason and another command."""
    made = clone.make("serve", f"ARGS=--workers 2 --bind={busy}")
    assert made.returncode == 2
    assert f"{busy}: Address already in use" in made.stderr
    assert 'make serve ARGS="--bind 127.0.0.1:8001"' in made.stderr
    assert "Installing" not in made.stdout
    assert not (clone.folder / "served").exists()


@pytest.mark.parametrize(
    ("arguments", "environ", "found"),
    [
        ("", {}, ["127.0.0.1:8000"]),
        ("", {"PORT": "5000"}, ["0.0.0.0:5000"]),
        ("-w 2 -b a:1 --bind [::1]:2 --access-logfile -", {}, ["a:1", "[::1]:2"]),
        ("", {"GUNICORN_CMD_ARGS": "--bind=a:1"}, ["a:1"]),
        ("-b b:2", {"GUNICORN_CMD_ARGS": "--bind=a:1"}, ["b:2"]),
        ("--bind unix:/run/a -b fd://3", {}, []),
        ("-c other.py", {}, []),
        ("-c other.py -b a:1", {}, ["a:1"]),
        ("--reuse-port", {"BASKET_GRPC_BIND": "a:3"}, ["a:3"]),
        ("", {"LISTEN_FDS": "1"}, []),
    ],
)
def test_addresses_are_those_that_gunicorn_takes(
    monkeypatch, arguments, environ, found
):
    """Of arguments, then of variables, then its default; only TCP's."""
    for name in ("GUNICORN_CMD_ARGS", "PORT", "LISTEN_FDS", "BASKET_GRPC_BIND"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert list(port_check.addresses(arguments.split())) == found


def test_problem_is_that_of_the_port(busy):
    """A free port has none, with IPv6 or tcp:// as well."""
    assert port_check.problem(busy) == "Address already in use"
    assert port_check.problem(f"tcp://{busy}") == "Address already in use"
    assert port_check.problem("127.0.0.1:0") == ""
    assert port_check.problem("[::1]:0") in ("", "Cannot assign requested address")
    beyond = port_check.main(["--bind", "127.0.0.1:99999"])
    assert beyond.startswith("127.0.0.1:99999: there is no such port, the last is ")
    assert port_check.main(["--bind"]) == port_check.main(["--bind", "a:b"]) == ""


# Stands for pip, by its name: twelve packages, of which one may be missing.
PIP = """
import os, sys
print(*(f"Collecting p{n}==1" for n in range(12)), sep="\\n")
if "MISSING" in os.environ:
    sys.exit("ERROR: No matching distribution found for p11")
print("Installing collected packages: p0, p1")
"""


def _install(clone, **environ):
    """Install the requirements of the server with that pip."""
    (clone.folder / "pip.py").write_text(PIP)
    return clone.make(".venv/serve.done", PYTHONPATH=str(clone.folder), **environ)


def test_installation_shows_that_it_is_alive(clone):
    """A line for each ten packages, and one when pip writes them."""
    made = _install(clone)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-2:] == [
        "  10 packages ...",
        "  writing 12 packages ...",
    ]
    assert (clone.folder / ".venv" / "serve.done").exists()


def test_failed_installation_shows_what_pip_says(clone):
    """Nothing counts as installed."""
    made = _install(clone, MISSING="p11")
    assert made.returncode
    assert "ERROR: No matching distribution found for p11" in made.stderr
    assert not (clone.folder / ".venv" / "serve.done").exists()
