"""Environments for what Basket is measured against, beside its own."""

import subprocess
import sys
import sysconfig
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / ".venv-peers"


def python_with(name: str, packages: tuple[str, ...]) -> Path:
    """The Python of an environment that has these packages, made on the first call.

    They come before those of Basket's environment, which are all there too.
    """
    environment = _FOLDER / name
    python = environment / "bin" / "python"
    done = environment / "done"
    if done.exists():
        return python
    print(f"installing {', '.join(packages)} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)  # noqa: S603
    pip = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *packages], check=True)  # noqa: S603
    # A .pth file's folders come after the environment's own packages.
    shared = sysconfig.get_path("purelib")
    site = environment / "lib" / Path(shared).parent.name / "site-packages"
    (site / "basket.pth").write_text(f"{shared}\n")
    done.touch()
    return python
