"""The GPUs of this machine, and their assignment to processes.

NVML lists GPUs without starting CUDA, so the Gunicorn master may use it before it
forks. A machine without an NVIDIA driver has no GPUs; that is no error.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import pynvml

from app.errors import SettingsError

_T = TypeVar("_T")


@dataclass(frozen=True)
class Gpu:
    """One GPU; NVML numbers GPUs by their PCI slots."""

    number: int
    uuid: str
    memory_mib: int


@dataclass(frozen=True)
class GpuMemory:
    """The memory of one GPU, and how much of it all processes use."""

    number: int
    name: str
    memory_mib: int
    used_mib: int


def installed() -> tuple[Gpu, ...]:
    """Return the GPUs that work; none on a machine without a driver."""
    return _read_all(_gpu)


class MemoryReader:
    """Reads the memory of GPUs again and again.

    NVML is opened once: each time it may take as long as the driver's start.
    """

    def __init__(self, numbers: tuple[int, ...] | None) -> None:
        """Store the numbers of the GPUs to read, None: all."""
        self._numbers = numbers
        self._is_open = False

    def read(self) -> tuple[GpuMemory, ...]:
        """Return the memory of the GPUs that work now."""
        if not self._is_open:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlInit()
                # NVML counts, so that it stays open below.
                self._is_open = True
        if not self._is_open:
            return ()
        wanted = self._numbers
        found = _read_all(_memory)
        return tuple(each for each in found if wanted is None or each.number in wanted)


def _read_all(read: Callable[[int], _T]) -> tuple[_T, ...]:
    """Return what `read` returns for the number of each GPU that answers."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    found = []
    try:
        for number in range(pynvml.nvmlDeviceGetCount()):
            # A lost GPU; the others work.
            with suppress(pynvml.NVMLError):
                found.append(read(number))
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return tuple(found)


def _gpu(number: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    total_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Gpu(number, str(pynvml.nvmlDeviceGetUUID(handle)), total_bytes >> 20)


def _memory(number: int) -> GpuMemory:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    bytes_of = pynvml.nvmlDeviceGetMemoryInfo(handle)
    sizes = int(bytes_of.total) >> 20, int(bytes_of.used) >> 20
    return GpuMemory(number, str(pynvml.nvmlDeviceGetName(handle)), *sizes)


def visible(environ: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES allows, in its order.

    As in CUDA, the list ends at the first name that is no GPU's, and a list that
    names a GPU twice allows none.
    """
    present = installed()
    allowed = environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return present
    found: list[Gpu] = []
    for part in allowed.split(","):
        gpu = _find(part.strip(), present)
        if gpu is None:
            break
        found.append(gpu)
    return tuple(found) if len(set(found)) == len(found) else ()


def _find(name: str, present: Sequence[Gpu]) -> Gpu | None:
    """Return the GPU with this number, or with this beginning of a UUID."""
    is_uuid = name.startswith("GPU-")
    for gpu in present:
        if name == str(gpu.number) or (is_uuid and gpu.uuid.startswith(name)):
            return gpu
    return None


def choose(wanted: tuple[int, ...] | None, present: Sequence[Gpu]) -> tuple[int, ...]:
    """Return the numbers of the GPUs to use: those of BASKET_GPUS, or all present.

    On a machine without GPUs BASKET_GPUS has no effect.

    Raises:
        SettingsError: a wanted GPU is missing.
    """
    numbers = tuple(gpu.number for gpu in present)
    if wanted is None or not numbers:
        return numbers
    missing = [number for number in wanted if number not in numbers]
    if missing:
        raise SettingsError(
            f"BASKET_GPUS names GPU {missing[0]}, and there are {list(numbers)}"
        )
    return wanted


def check_memory_fractions(
    processes: int, gpus: tuple[int, ...], fraction: float | None
) -> None:
    """Check that the memory fractions of the processes on one GPU fit on it.

    Raises:
        SettingsError: their sum is more than 1.
    """
    if fraction is None or not gpus:
        return
    on_fullest = -(-processes // len(gpus))
    # Sums such as three times 1/3 must not fail by a rounding error.
    if on_fullest * fraction > 1 + 1e-9:
        raise SettingsError(
            f"BASKET_GPU_MEMORY_FRACTION={fraction}: {processes} processes on "
            f"{len(gpus)} GPU(s) put {on_fullest} on one GPU, and "
            f"{on_fullest} x {fraction} = {on_fullest * fraction:.2f} is more than 1"
        )


def least_used(gpus: tuple[int, ...], taken: Iterable[int]) -> int:
    """Return the GPU with the fewest processes, the first of several.

    Unlike round robin, this stays even when a process dies and is replaced.
    """
    load = Counter(taken)
    return min(gpus, key=lambda gpu: load[gpu])


def pin(gpu: int, environ: MutableMapping[str, str] = os.environ) -> None:
    """Show this process one GPU only.

    CUDA reads both variables at its first use. Without the second, it numbers GPUs by
    speed and not by slot, as NVML does.
    """
    environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
