"""Several ways to do the same, timed by turns, so that noise hits them alike."""

import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

Way: TypeAlias = Callable[[], object]

_ROUNDS = 25


def print_table(
    about: str, titles: Sequence[str], lines: Iterable[tuple[int, Sequence[Way]]]
) -> None:
    """Print a Markdown table of medians, in milliseconds.

    Each of the lines has the rows of its batch, and what does it, as titled. Lines are
    drawn as they are measured.
    """
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {os.cpu_count()} cores, Python {platform.python_version()};")
    print(f"{about}; median of {_ROUNDS} rounds\n")
    print(f"| rows | {' | '.join(f'{title} (ms)' for title in titles)} |")
    print("|---" * (len(titles) + 1) + "|")
    for rows, ways in lines:
        rounds = [[_time_ms(way) for way in ways] for _ in range(_ROUNDS + 1)]
        # The first round builds what the others use.
        medians = map(statistics.median, zip(*rounds[1:], strict=True))
        print(
            f"| {rows} | {' | '.join(f'{each:.2f}' for each in medians)} |", flush=True
        )


def _time_ms(way: Way) -> float:
    began_at = time.perf_counter()
    way()
    return (time.perf_counter() - began_at) * 1000
