"""The machine under test: processor, memory, GPUs, versions of packages."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

_GIB = 1 << 30
# Loading a .keras file of 0.5 GiB peaked at 1.9 GiB: three times the file, and half a
# GiB for TensorFlow.
_COPIES = 3
_PROCESS_BYTES = _GIB // 2
_PACKAGES = ("TensorFlow", "Gunicorn", "Locust")


def describe(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """Return the machine's properties, and the versions of installed packages."""
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
    """Return how much memory is missing to load `model` in each process, or None."""
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


def memory_bytes(name: str) -> int:
    """Return a value of /proc/meminfo, such as MemAvailable, in bytes."""
    return int(_value(Path("/proc/meminfo"), name).split()[0]) * 1024


def _processor() -> str:
    return _value(Path("/proc/cpuinfo"), "model name") or platform.machine()


def _value(file: Path, name: str) -> str:
    for line in file.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _gpus() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "none"
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    shown = subprocess.run(query, capture_output=True, text=True, check=False)  # noqa: S603
    return ", ".join(shown.stdout.split("\n")).strip(", ") or "none"
