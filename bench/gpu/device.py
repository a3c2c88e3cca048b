"""The device that computes: a GPU, or the processor in a trial run."""

from collections.abc import Callable
from dataclasses import dataclass

import pynvml

from app import gpus
from bench.machine import memory_bytes


@dataclass(frozen=True)
class Device:
    """A device; `used_mib` returns the memory that all processes together use now.

    Not per process: in a container the driver may know a process by another id.
    """

    name: str
    driver: str
    memory_mib: int
    used_mib: Callable[[], int]


def gpu() -> Device | None:
    """Pin this process and its children to the first visible GPU, and return it."""
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
    """Return the processor, whose memory is the machine's."""
    total_bytes = memory_bytes("MemTotal")
    return Device(
        "none: this is a trial run on the processor",
        "none",
        total_bytes >> 20,
        lambda: (total_bytes - memory_bytes("MemAvailable")) >> 20,
    )
