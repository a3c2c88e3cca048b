"""Virtual environments of the peers, below .venv-peers, with pinned requirements."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from testing.server import ROOT

_FOLDER = ROOT / ".venv-peers"
_REQUIREMENTS = ROOT / "requirements" / "peers"


class NotInstalled(OSError):
    """An environment could not be made; the text says why."""


def pinned_version(peer: str) -> str:
    """Return the version in a peer's requirements."""
    pins = (_REQUIREMENTS / f"{peer}.txt").read_text()
    (found,) = re.findall(rf"^{re.escape(peer)}==(\S+)", pins, re.M)
    return str(found)


def python_of(peer: str) -> Path:
    """Return the Python of a peer's environment, which is made at the first call.

    Packages of Basket's environment are visible behind its own.

    Raises:
        NotInstalled: pip cannot install it.
    """
    requirements = _REQUIREMENTS / f"{peer}.txt"
    environment = _FOLDER / peer
    python, done = environment / "bin" / "python", environment / "done"
    wanted = requirements.read_text()
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"installing {peer} into .venv-peers ...", flush=True)
    shutil.rmtree(environment, ignore_errors=True)
    _run(peer, [sys.executable, "-m", "venv", "--without-pip", environment])
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python]
    _run(peer, [*pip, "install", "--quiet", "--require-hashes", "-r", requirements])
    # Folders in a .pth file come after the environment's own packages.
    shared = sysconfig.get_path("purelib")
    site = environment / "lib" / Path(shared).parent.name / "site-packages"
    (site / "basket.pth").write_text(f"{shared}\n")
    done.write_text(wanted)
    return python


def _run(peer: str, command: list[str | Path]) -> None:
    ran = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if ran.returncode:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
        reason = " ".join(errors[-1:])
        raise NotInstalled(f"{peer} can't be installed: {reason}".strip())
