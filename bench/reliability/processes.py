"""What the kernel tells of a server's processes: memory, threads, connections."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testing.memory import resident_mib


@dataclass(frozen=True)
class Held:
    """What processes hold together; memory is resident, in MiB."""

    mib: float
    threads: int
    descriptors: int


def held_by(pids: Iterable[int]) -> Held:
    """What the processes hold now.

    Raises:
        FileNotFoundError: one has ended.
    """
    pids = list(pids)
    folders = [Path(f"/proc/{pid}") for pid in pids]
    return Held(
        sum(map(resident_mib, pids)),
        sum(len(os.listdir(each / "task")) for each in folders),
        sum(len(os.listdir(each / "fd")) for each in folders),
    )


def client_ports(pid: int, port: int) -> set[int]:
    """The ports of the clients whose connections to `port` a process holds."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            inodes.add(str(file.readlink()))
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, *_, inode = line.split()[:10]
        if f"socket:[{inode}]" in inodes and int(local.rpartition(":")[2], 16) == port:
            found.add(int(remote.rpartition(":")[2], 16))
    return found
