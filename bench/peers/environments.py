"""Virtual environments of the peers, below .venv-peers, with pinned requirements."""

import re
import shutil
import sysconfig
import venv
from pathlib import Path

from testing.processes import run_python
from testing.server import ROOT

_FOLDER = ROOT / ".venv-peers"
_REQUIREMENTS = ROOT / "requirements" / "peers"


def pinned_version(peer: str) -> str:
    """Return the version in a peer's requirements."""
    pins = (_REQUIREMENTS / f"{peer}.txt").read_text()
    (found,) = re.findall(rf"^{re.escape(peer)}==(\S+)", pins, re.M)
    return str(found)


def python_of(peer: str) -> Path:
    """Return the Python of a peer's environment, which is made at the first call.

    Packages of Basket's environment are visible behind its own.

    Raises:
        subprocess.CalledProcessError: pip cannot install it.
    """
    requirements = _REQUIREMENTS / f"{peer}.txt"
    environment = _FOLDER / peer
    python, done = environment / "bin" / "python", environment / "done"
    wanted = requirements.read_text()
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"installing {peer} into .venv-peers ...", flush=True)
    shutil.rmtree(environment, ignore_errors=True)
    venv.create(environment, symlinks=True)
    pip = ("-m", "pip", f"--python={python}", "install", "--quiet")
    run_python(*pip, "--require-hashes", f"--requirement={requirements}")
    # Folders in a .pth file come after the environment's own packages.
    shared = sysconfig.get_path("purelib")
    site = environment / "lib" / Path(shared).parent.name / "site-packages"
    (site / "basket.pth").write_text(f"{shared}\n")
    done.write_text(wanted)
    return python
