"""The machine under test: what it is, and whether a model fits into its memory."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

_GIB = 1 << 30
# The peak while a .keras file of 0.5 GiB loads was measured as 1.9 GiB: three times
# the file, and about half a GiB for TensorFlow.
_COPIES = 3
_PROCESS_BYTES = _GIB // 2
_PACKAGES = ("TensorFlow", "Gunicorn", "Locust")


def describe(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """What this machine is, in the words of the report; packages that are installed."""
    found = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_bytes('MemTotal') / _GIB:.0f} GiB",
        "GPU": _gpus(),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
    }
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def lacks_memory_for(model: Path, processes: int) -> str | None:
    """Say how much is missing to load `model` in each process; None if it fits."""
    size = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    needed = processes * (_COPIES * size + _PROCESS_BYTES)
    free = memory_bytes("MemAvailable")
    if needed <= free:
        return None
    return (
        f"not enough memory: {processes} processes with a model of "
        f"{size / _GIB:.1f} GiB need up to {needed / _GIB:.1f} GiB to load, "
        f"{free / _GIB:.1f} GiB are free"
    )


def memory_bytes(word: str) -> int:
    """Of this machine's memory, by a word of the kernel's, such as MemAvailable."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == word:
            return int(value.split()[0]) * 1024
    raise KeyError(word)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _gpus() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "none"
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    shown = subprocess.run(query, capture_output=True, text=True, check=False)  # noqa: S603
    return ", ".join(shown.stdout.split("\n")).strip(", ") or "none"
