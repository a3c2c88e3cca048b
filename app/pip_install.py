"""Runs `pip install` with these arguments, and shows that it is alive.

Only the standard library: make runs this file in the environment that it installs into.
On a terminal one line changes; elsewhere, as in logs, a line is added now and then.
"""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence

_TERMINAL_EVERY_S = 0.5
_LOG_EVERY_S = 15.0
# Lines of pip that are shown if it fails.
_SHOWN_LINES = 30
_COMMAND = ["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]


def install(arguments: Sequence[str], every_s: float | None = None) -> int:
    """Run pip, show its progress every so many seconds, and return its exit status."""
    is_terminal = sys.stdout.isatty()
    if every_s is None:
        every_s = _TERMINAL_EVERY_S if is_terminal else _LOG_EVERY_S
    began_at = time.monotonic()
    shown_at = began_at
    lines: list[str] = []
    with subprocess.Popen(  # noqa: S603
        [sys.executable, *_COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as pip:
        assert pip.stdout is not None
        written: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(pip.stdout, written)).start()
        while True:
            try:
                line = written.get(timeout=max(every_s, 0.01))
            except queue.Empty:
                line = ""
            if line is None:
                break
            lines += [line] if line else []
            now = time.monotonic()
            if now - shown_at >= every_s:
                shown_at = now
                text = f"  {_progress(lines)}, {now - began_at:.0f} s"
                if is_terminal:
                    text = f"\r{text:70}"
                print(text, end="" if is_terminal else "\n", flush=True)
    if is_terminal:
        print(f"\r{'':70}\r", end="", flush=True)
    if pip.returncode:
        print("".join(lines[-_SHOWN_LINES:]), end="", file=sys.stderr)
    return pip.returncode


def _read(lines: Iterable[str], written: "queue.SimpleQueue[str | None]") -> None:
    for line in lines:
        written.put(line)
    written.put(None)


def _progress(lines: Sequence[str]) -> str:
    found = sum(
        line.startswith(("Collecting ", "Requirement already satisfied"))
        for line in lines
    )
    if any(line.startswith("Installing collected packages") for line in lines):
        return f"writing {found} packages"
    return f"downloaded {found} packages"


if __name__ == "__main__":
    sys.exit(install(sys.argv[1:]))
