"""Which GPUs this machine has, which process gets which, and how much of each.

NVML tells without touching CUDA, so the Gunicorn master may ask before it forks.
With no NVIDIA driver there are no GPUs, which is an answer and not an error.
"""

import os
from collections import Counter
from collections.abc import Iterable, MutableMapping
from contextlib import suppress

import pynvml

from app.errors import SettingsError


def total_memory_mib() -> dict[int, int]:
    """GPU number -> its total memory in MiB; empty on a machine without a GPU."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        handles = {
            gpu: pynvml.nvmlDeviceGetHandleByIndex(gpu)
            for gpu in range(pynvml.nvmlDeviceGetCount())
        }
        return {
            gpu: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20
            for gpu, handle in handles.items()
        }
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def choose(wanted: tuple[int, ...] | None, present: Iterable[int]) -> tuple[int, ...]:
    """The GPUs to use: those of BASKET_GPUS, or all that are present.

    Raises:
        SettingsError: a wanted GPU is not there, though others are.
    """
    there = tuple(sorted(present))
    if wanted is None or not there:
        return there
    missing = [gpu for gpu in wanted if gpu not in there]
    if missing:
        raise SettingsError(
            f"BASKET_GPUS names GPU {missing[0]}, and this machine has {list(there)}"
        )
    return wanted


def check_shares(processes: int, gpus: tuple[int, ...], fraction: float | None) -> None:
    """Refuse a set-up in which the processes on one GPU want more than all of it.

    Raises:
        SettingsError: with the sum.
    """
    if fraction is None or not gpus:
        return
    on_fullest = -(-processes // len(gpus))
    # Decimal fractions such as three times 1/3 must not fail by a rounding error.
    if on_fullest * fraction > 1 + 1e-9:
        raise SettingsError(
            f"BASKET_GPU_MEMORY_FRACTION={fraction}: {processes} processes on "
            f"{len(gpus)} GPU(s) put {on_fullest} on one GPU, and "
            f"{on_fullest} x {fraction} = {on_fullest * fraction:.2f} is more than 1"
        )


def least_used(gpus: tuple[int, ...], taken: Iterable[int]) -> int:
    """The GPU with the fewest processes; the first in the list among equals.

    Counting the living, rather than dealing in turn, keeps the spread even when a
    process dies and another takes its place.
    """
    load = Counter(taken)
    return min(gpus, key=lambda gpu: load[gpu])


def pin(gpu: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Let this process see one GPU only, by NVML's numbering.

    CUDA reads both variables when it is first used, and without the second counts
    GPUs from the fastest, NVML from the lowest slot.
    """
    environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"


def visible(
    present: Iterable[int], environ: MutableMapping[str, str] = os.environ
) -> list[int]:
    """The GPUs that this process sees, in the order in which CUDA numbers them."""
    there = sorted(present)
    pinned = environ.get("CUDA_VISIBLE_DEVICES")
    if pinned is None:
        return there
    numbers = [int(part) for part in pinned.split(",") if part.strip().isdigit()]
    return [gpu for gpu in numbers if gpu in there]
