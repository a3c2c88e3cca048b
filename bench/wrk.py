"""Debian's wrk, which posts the same bodies again and again."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = Path(__file__).with_name("post_bodies.lua")


@dataclass(frozen=True)
class Seen:
    """What one run of wrk saw; latencies in seconds.

    `requests` counts all that were answered, with whatever status; `errors` counts
    those without an answer.
    """

    requests: int
    seconds: float
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    not_2xx: int
    errors: int

    def rate(self) -> float:
        """Requests answered with 2xx in a second."""
        return (self.requests - self.not_2xx) / self.seconds


def require() -> None:
    """End the program, with status 2 and what to install, where there is no wrk."""
    if not shutil.which("wrk"):
        print("this benchmark wants Debian's package wrk", file=sys.stderr)
        raise SystemExit(2)


def drive(
    url: str,
    bodies: Sequence[Path],
    content_type: str,
    connections: int,
    seconds: float,
) -> Seen:
    """Post the files in turn over so many connections, with one thread.

    wrk counts in whole seconds, so `seconds` is rounded to at least one.

    Raises:
        subprocess.CalledProcessError: wrk failed.
    """
    command = [
        *("wrk", "--threads=1", f"--connections={connections}"),
        *(f"--duration={max(1, round(seconds))}s", "--timeout=30s"),
        *(f"--script={_SCRIPT}", url, "--", content_type, *map(str, bodies)),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return Seen(**json.loads(ran.stdout.strip().splitlines()[-1]))
