"""Which GPUs this machine has, which process gets which, and how much of each.

NVML tells without touching CUDA, so the Gunicorn master may ask before it forks.
With no NVIDIA driver there are no GPUs, which is an answer and not an error.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pynvml

from app.errors import SettingsError


@dataclass(frozen=True)
class Gpu:
    """One GPU, by NVML's number, which is that of its slot."""

    number: int
    uuid: str
    memory_mib: int


def installed() -> tuple[Gpu, ...]:
    """The GPUs that work; none on a machine without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = [_ask(number) for number in range(pynvml.nvmlDeviceGetCount())]
        return tuple(gpu for gpu in found if gpu is not None)
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _ask(number: int) -> Gpu | None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        total_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        return Gpu(number, str(pynvml.nvmlDeviceGetUUID(handle)), total_bytes >> 20)
    except pynvml.NVMLError:
        return None  # lost: the others go on


def visible(environ: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves to this process, in its order.

    As in CUDA, what stands behind a name of no GPU does not count, and a list that
    names a GPU twice leaves none.
    """
    there = installed()
    allowed = environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return there
    found: list[Gpu] = []
    for part in allowed.split(","):
        gpu = _named(part.strip(), there)
        if gpu is None:
            break
        found.append(gpu)
    return tuple(found) if len(set(found)) == len(found) else ()


def _named(name: str, there: Sequence[Gpu]) -> Gpu | None:
    """The GPU of this number, or whose UUID begins so."""
    is_uuid = name.startswith("GPU-")
    for gpu in there:
        if name == str(gpu.number) or (is_uuid and gpu.uuid.startswith(name)):
            return gpu
    return None


def choose(wanted: tuple[int, ...] | None, there: Sequence[Gpu]) -> tuple[int, ...]:
    """The numbers of the GPUs to use: those of BASKET_GPUS, or all that are there.

    Raises:
        SettingsError: a wanted GPU is not there, though others are.
    """
    numbers = tuple(gpu.number for gpu in there)
    if wanted is None or not numbers:
        return numbers
    missing = [number for number in wanted if number not in numbers]
    if missing:
        raise SettingsError(
            f"BASKET_GPUS names GPU {missing[0]}, and there are {list(numbers)}"
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
