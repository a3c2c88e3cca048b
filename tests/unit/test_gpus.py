"""Which GPUs there are, who gets which, and whether the shares add up."""

from types import SimpleNamespace

import pynvml
import pytest

from app import gpus
from app.errors import SettingsError

GIB = 1 << 30


class FakeNvml:
    """Stands in for the driver's library: so many GPUs, each with its memory."""

    NVMLError = pynvml.NVMLError

    def __init__(self, *totals: int, lost: int | None = None) -> None:
        self.totals = totals
        self.lost = lost
        self.open = 0

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(self.totals)

    def nvmlDeviceGetHandleByIndex(self, number):
        return number

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}abc"

    def nvmlDeviceGetMemoryInfo(self, handle):
        if handle == self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return SimpleNamespace(total=self.totals[handle])


def _gpus(*numbers):
    return tuple(gpus.Gpu(number, f"GPU-{number}abc", 16384) for number in numbers)


def test_no_driver(monkeypatch):
    """Without an NVIDIA driver there are no GPUs, and that is no error."""

    def no_library(name):
        raise OSError(f"{name}: cannot open shared object file")

    # Hides the driver's library from pynvml, should this machine have one.
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    assert gpus.installed() == ()


def test_installed(monkeypatch):
    """Each GPU has its total in MiB; a fake NVML stands in, no GPU can be had."""
    nvml = FakeNvml(80 * GIB, 16 * GIB + 5)
    monkeypatch.setattr(gpus, "pynvml", nvml)
    assert [gpu.memory_mib for gpu in gpus.installed()] == [81920, 16384]
    assert nvml.open == 0


def test_a_lost_gpu_is_left_out(monkeypatch):
    """A GPU that fails to answer is not there; a fake stands in for the GPUs."""
    nvml = FakeNvml(GIB, GIB, GIB, lost=1)
    monkeypatch.setattr(gpus, "pynvml", nvml)
    assert [gpu.number for gpu in gpus.installed()] == [0, 2]
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("wanted", "present", "chosen"),
    [
        pytest.param(None, [0, 1], (0, 1), id="all"),
        pytest.param(None, [], (), id="none there"),
        pytest.param((2, 0), [0, 1, 2], (2, 0), id="some, in the wanted order"),
        pytest.param((3,), [], (), id="wanted, but a machine without GPUs"),
    ],
)
def test_choose(wanted, present, chosen):
    """The chosen GPUs are the wanted ones, or all; a machine may have none."""
    assert gpus.choose(wanted, _gpus(*present)) == chosen


def test_choose_missing():
    """A wanted GPU that is not there is named, with those that are."""
    with pytest.raises(
        SettingsError, match=r"BASKET_GPUS names GPU 4, and there are \[0, 1\]"
    ):
        gpus.choose((0, 4), _gpus(0, 1))


@pytest.mark.parametrize(
    ("processes", "used", "fraction"),
    [
        pytest.param(3, (0,), 1 / 3, id="three thirds"),
        pytest.param(10, (0,), 0.1, id="ten tenths"),
        pytest.param(3, (0,), 0.3333333333333334, id="three thirds, rounded up"),
        pytest.param(4, (0, 1), 0.5, id="two halves on each of two"),
        pytest.param(1, (0,), 1.0, id="one takes all"),
        pytest.param(8, (0,), None, id="no limit wanted"),
        pytest.param(8, (), 0.9, id="no GPU"),
    ],
)
def test_shares_that_fit(processes, used, fraction):
    """Shares that add up to no more than one GPU pass."""
    gpus.check_shares(processes, used, fraction)


@pytest.mark.parametrize(
    ("processes", "used", "fraction", "total"),
    [
        pytest.param(3, (0,), 0.4, "3 x 0.4 = 1.20", id="one GPU"),
        pytest.param(3, (0, 1), 0.6, "2 x 0.6 = 1.20", id="uneven on two"),
        pytest.param(2, (5,), 0.51, "2 x 0.51 = 1.02", id="by a little"),
    ],
)
def test_shares_that_do_not_fit(processes, used, fraction, total):
    """Shares that want more than one GPU are refused, with the sum on the fullest."""
    with pytest.raises(SettingsError, match=r"^BASKET_GPU_MEMORY_FRACTION=") as raised:
        gpus.check_shares(processes, used, fraction)
    assert f"{total} is more than 1" in str(raised.value)


@pytest.mark.parametrize(
    ("taken", "least"),
    [
        pytest.param([], 2, id="none taken"),
        pytest.param([2], 0, id="first taken"),
        pytest.param([2, 0, 0], 2, id="after a death"),
        pytest.param([None, 7, 2, 0, 2], 0, id="others do not count"),
    ],
)
def test_least_used(taken, least):
    """A new process gets the GPU with the fewest living ones, the first of equals."""
    assert gpus.least_used((2, 0), taken) == least


def test_pin():
    """A pinned process sees one GPU, and counts GPUs as NVML does."""
    environ = {"CUDA_VISIBLE_DEVICES": "0,1"}
    gpus.pin(3, environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        pytest.param({}, [0, 1, 2], id="not set"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1"}, [1], id="pinned"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "2, 0"}, [2, 0], id="in that order"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "5,1"}, [], id="not there"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0,-1,2"}, [0], id="up to what is none"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0,,2"}, [0], id="up to a gap"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0,0"}, [], id="one twice"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "MIG-0"}, [], id="a part of one"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-2a,GPU-0"}, [2, 0], id="by UUID"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, [], id="empty"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "-1"}, [], id="none wanted"),
    ],
)
def test_visible(monkeypatch, environ, seen):
    """What CUDA_VISIBLE_DEVICES lets through is seen, in its order; unset, all is."""
    monkeypatch.setattr(gpus, "pynvml", FakeNvml(GIB, GIB, GIB))
    assert [gpu.number for gpu in gpus.visible(environ)] == seen
