"""Environments for what Basket is measured against, beside its own."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / ".venv-peers"


class NotInstalled(Exception):
    """An environment could not be made; the text says why."""


def python_with(
    name: str, packages: tuple[str, ...] | Path, alone_on: Path | None = None
) -> Path:
    """The Python of an environment that has these packages, made on the first call.

    `packages` are names, or a requirements file with hashes; with others than before
    the environment is made anew. They come before those of Basket's environment, which
    are all there too; not so in one that is `alone_on` another Python.

    Raises:
        NotInstalled: pip can't get them, or there is no such Python.
    """
    environment = _FOLDER / name
    python = environment / "bin" / "python"
    arguments: list[str | Path]
    if isinstance(packages, Path):
        wanted, arguments = packages.read_text(), ["--require-hashes", "-r", packages]
    else:
        wanted, arguments = "\n".join(packages), list(packages)
    done = environment / "done"
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"installing {name} into .venv-peers ...", flush=True)
    shutil.rmtree(environment, ignore_errors=True)
    base = alone_on or Path(sys.executable)
    if not base.exists():
        raise NotInstalled(f"{name} can't be installed: it wants {base}")
    _run(name, [base, "-m", "venv", "--without-pip", environment])
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python]
    _run(name, [*pip, "install", "--quiet", *arguments])
    if alone_on is None:
        # A .pth file's folders come after the environment's own packages.
        shared = sysconfig.get_path("purelib")
        site = environment / "lib" / Path(shared).parent.name / "site-packages"
        (site / "basket.pth").write_text(f"{shared}\n")
    done.write_text(wanted)
    return python


def _run(name: str, command: list[str | Path]) -> None:
    ran = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if ran.returncode:
        said = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled(f"{name} can't be installed: {' '.join(said[-1:])}".strip())
