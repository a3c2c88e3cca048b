"""Memory of processes."""

import os
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_mib(pid: int) -> float:
    """Return a process's resident memory in MiB, 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * _PAGE_BYTES / (1 << 20)
