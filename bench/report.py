"""What every benchmark writes: a header with the machine, Markdown tables, a folder."""

import argparse
import datetime
import os
import platform
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from app import gpus, interpreter
from testing.server import ROOT

_PACKAGES = ("TensorFlow", "Keras", "Gunicorn")


def header(command: Sequence[str], more: Mapping[str, str] | None = None) -> str:
    """Return the line that says by which command, when and where figures were made.

    `more` has further properties of the machine, such as versions.
    """
    words = ", ".join(f"{k}: {v}" for k, v in (_machine() | dict(more or {})).items())
    return f"`{shlex.join(['python', '-m', *command])}` on {_today()}; {words}."


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _machine() -> dict[str, str]:
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    kind = "" if interpreter.is_optimized() else " without optimizations"
    cards = [each.name for each in gpus.MemoryReader(None).read()]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_bytes / (1 << 30):.0f} GiB",
        "GPU": ", ".join(cards) or "none",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version() + kind,
        **versions(_PACKAGES),
    }


def table(heading: Sequence[str], body: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (heading, *body)]
    return [lines[0], "|" + "---|" * len(heading), *lines[1:]]


def new_folder(wanted: Path | None) -> Path:
    """Make the report's folder: `wanted`, or reports/<date>, with a number if taken.

    Raises:
        FileExistsError: `wanted` exists already and is not empty.
    """
    first = wanted or ROOT / "reports" / _today()
    folder, number = first, 1
    while wanted is None and folder.exists():
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} has a report already")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _today() -> str:
    """Return the date in UTC as ISO 8601."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def positive(text: str) -> float:
    """Parse a number above 0 for argparse.

    Raises:
        ValueError: not a number.
        argparse.ArgumentTypeError: not above 0, or not finite.
    """
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number
