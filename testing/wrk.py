"""Drive a server with Debian's wrk, which posts the same bodies repeatedly."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_SCRIPT = Path(__file__).with_name("post_bodies.lua")


class Driven(NamedTuple):
    """Requests answered with 2xx per second, seconds to the answer, and failures."""

    rate: float
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    not_2xx: int
    errors: int


def drive(
    url: str,
    bodies: Sequence[Path],
    content_type: str,
    connections: int,
    seconds: float,
) -> Driven:
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
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout.strip().splitlines()[-1])
    answered, took_s = found.pop("requests"), found.pop("seconds")
    return Driven(rate=(answered - found["not_2xx"]) / took_s, **found)
