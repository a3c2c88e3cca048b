"""What computes: a GPU, or in a trial run the processor, and its memory in use."""

from collections.abc import Callable
from dataclasses import dataclass

import pynvml

from app import gpus
from bench.loadtest.machine import memory_bytes


@dataclass(frozen=True)
class Device:
    """`name` and `driver` are words for the page; `used_mib` gives MiB in use now.

    That is what all processes use together: a process in a container may have another
    number for the driver than for itself.
    """

    name: str
    driver: str
    memory_mib: int
    used_mib: Callable[[], int]


def gpu() -> Device | None:
    """The GPU that Basket and all that this process starts have from now on.

    The first that is visible; None: there is none.
    """
    there = gpus.visible()
    if not there:
        return None
    gpus.pin(there[0].number)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(there[0].number)
    return Device(
        str(pynvml.nvmlDeviceGetName(handle)),
        str(pynvml.nvmlSystemGetDriverVersion()),
        there[0].memory_mib,
        lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) >> 20,
    )


def processor() -> Device:
    """What stands in for a GPU: the machine's own memory, whoever uses it."""
    total_bytes = memory_bytes("MemTotal")
    return Device(
        "none: this is a trial run on the processor",
        "none",
        total_bytes >> 20,
        lambda: (total_bytes - memory_bytes("MemAvailable")) >> 20,
    )
