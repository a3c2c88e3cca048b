"""Drive a server with Debian's wrk, which posts the same bodies repeatedly."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Seen

_SCRIPT = Path(__file__).with_name("post_bodies.lua")


def require() -> None:
    """Exit with status 2 and the name of the package if wrk is not installed."""
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
    """Post the files in rotation over `connections` connections with one thread.

    wrk counts whole seconds: `seconds` is rounded to at least one.

    Raises:
        subprocess.CalledProcessError: wrk failed.
    """
    command = [
        *("wrk", "--threads=1", f"--connections={connections}"),
        *(f"--duration={max(1, round(seconds))}s", "--timeout=30s"),
        *(f"--script={_SCRIPT}", url, "--", content_type, *map(str, bodies)),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    found = json.loads(ran.stdout.strip().splitlines()[-1])
    answered, took_s = found.pop("requests"), found.pop("seconds")
    return Seen(rate=(answered - found["not_2xx"]) / took_s, **found)
