"""Virtual environments of the peers, below .venv-peers."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from testing.server import ROOT

_FOLDER = ROOT / ".venv-peers"


class NotInstalled(OSError):
    """An environment could not be made; the text says why."""


def python_with(name: str, requirements: Path) -> Path:
    """Return the Python of an environment with these requirements, made if need be.

    Packages of Basket's environment are visible behind them.

    Raises:
        NotInstalled: pip cannot install them.
    """
    environment = _FOLDER / name
    python = environment / "bin" / "python"
    done = environment / "done"
    wanted = requirements.read_text()
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"installing {name} into .venv-peers ...", flush=True)
    shutil.rmtree(environment, ignore_errors=True)
    _run(name, [sys.executable, "-m", "venv", "--without-pip", environment])
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python]
    _run(name, [*pip, "install", "--quiet", "--require-hashes", "-r", requirements])
    # Folders in a .pth file come after the environment's own packages.
    shared = sysconfig.get_path("purelib")
    site = environment / "lib" / Path(shared).parent.name / "site-packages"
    (site / "basket.pth").write_text(f"{shared}\n")
    done.write_text(wanted)
    return python


def _run(name: str, command: list[str | Path]) -> None:
    ran = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if ran.returncode:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled(
            f"{name} can't be installed: {' '.join(errors[-1:])}".strip()
        )
