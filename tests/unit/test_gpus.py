"""The GPUs of a machine, and their assignment to processes."""

from types import SimpleNamespace

import pynvml
import pytest

from app import gpus
from app.errors import SettingsError

MIB, GIB = 1 << 20, 1 << 30


class FakeNvml:
    """NVML for a machine with GPUs of these sizes in bytes; `lost` does not answer."""

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
        return SimpleNamespace(total=self.totals[handle], used=3 * MIB + 5)

    def nvmlDeviceGetName(self, handle):
        return f"GPU of slot {handle}"


def _gpus(*numbers):
    return tuple(gpus.Gpu(number, f"GPU-{number}abc", 16384) for number in numbers)


def test_machine_without_driver_has_no_gpus(monkeypatch):
    """The missing library of the NVIDIA driver is no error."""

    def no_library(name):
        raise OSError(f"{name}: cannot open shared object file")

    # Hides the driver's library on a machine that has one.
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    assert gpus.installed() == ()


def test_installed_gpus_have_memory_in_mib_and_lost_ones_are_left_out(monkeypatch):
    """A GPU that does not answer is left out, and NVML is shut down afterwards."""
    nvml = FakeNvml(80 * GIB, GIB, 16 * GIB + 5, lost=1)
    monkeypatch.setattr(gpus, "pynvml", nvml)
    found = [(gpu.number, gpu.memory_mib) for gpu in gpus.installed()]
    assert found == [(0, 81920), (2, 16384)]
    assert nvml.open == 0


def test_memory_of_gpus_is_in_mib(monkeypatch):
    """Total and used memory of each GPU that answers, with its name."""
    nvml = FakeNvml(80 * GIB, GIB, lost=1)
    monkeypatch.setattr(gpus, "pynvml", nvml)
    found = gpus.MemoryReader(None).read()
    assert found == (gpus.GpuMemory(0, "GPU of slot 0", 81920, 3),)


def test_memory_is_that_of_the_wanted_gpus(monkeypatch):
    """GPUs that BASKET_GPUS leaves out are not read."""
    monkeypatch.setattr(gpus, "pynvml", FakeNvml(GIB, GIB, GIB))
    found = gpus.MemoryReader((0, 2)).read()
    assert [each.number for each in found] == [0, 2]


def test_nvml_stays_open_between_reads(monkeypatch):
    """To open it may take as long as the driver's start, and it is read each second."""
    nvml = FakeNvml(GIB)
    monkeypatch.setattr(gpus, "pynvml", nvml)
    reader = gpus.MemoryReader(None)
    for _ in range(3):
        assert reader.read()
        assert nvml.open == 1


def test_machine_whose_driver_comes_later_has_memory_then(monkeypatch):
    """A read without a driver finds nothing, and the next one tries again."""
    nvml = FakeNvml(GIB)
    monkeypatch.setattr(gpus, "pynvml", nvml)
    reader = gpus.MemoryReader(None)

    def fail():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    with monkeypatch.context() as patch:
        patch.setattr(nvml, "nvmlInit", fail)
        assert reader.read() == ()
    assert len(reader.read()) == 1


@pytest.mark.parametrize(
    ("wanted", "present", "chosen"),
    [
        pytest.param(None, [0, 1], (0, 1), id="all"),
        pytest.param(None, [], (), id="none present"),
        pytest.param((2, 0), [0, 1, 2], (2, 0), id="some, in the wanted order"),
        pytest.param((3,), [], (), id="wanted on a machine without GPUs"),
    ],
)
def test_chosen_gpus_are_the_wanted_ones_or_all(wanted, present, chosen):
    """Without BASKET_GPUS all GPUs are used."""
    assert gpus.choose(wanted, _gpus(*present)) == chosen


def test_missing_gpu_is_a_configuration_error():
    """The error names the missing GPU and those that are present."""
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
        pytest.param(8, (0,), None, id="no limit"),
        pytest.param(8, (), 0.9, id="no GPU"),
    ],
)
def test_memory_fractions_up_to_1_fit(processes, used, fraction):
    """The fractions of the processes on one GPU may add up to 1."""
    gpus.check_memory_fractions(processes, used, fraction)


@pytest.mark.parametrize(
    ("processes", "used", "fraction", "total"),
    [
        pytest.param(3, (0,), 0.4, "3 x 0.4 = 1.20", id="one GPU"),
        pytest.param(3, (0, 1), 0.6, "2 x 0.6 = 1.20", id="uneven on two"),
        pytest.param(2, (5,), 0.51, "2 x 0.51 = 1.02", id="slightly too much"),
    ],
)
def test_memory_fractions_above_1_are_a_configuration_error(
    processes, used, fraction, total
):
    """The error shows the sum on the GPU with the most processes."""
    with pytest.raises(SettingsError, match=r"^BASKET_GPU_MEMORY_FRACTION=") as raised:
        gpus.check_memory_fractions(processes, used, fraction)
    assert f"{total} is more than 1" in str(raised.value)


@pytest.mark.parametrize(
    ("taken", "least"),
    [
        pytest.param([], 2, id="none taken"),
        pytest.param([2], 0, id="first taken"),
        pytest.param([2, 0, 0], 2, id="after the end of a process"),
        pytest.param([None, 7, 2, 0, 2], 0, id="other GPUs do not count"),
    ],
)
def test_new_process_gets_the_least_used_gpu(taken, least):
    """Of GPUs with as many processes the first one is used."""
    assert gpus.least_used((2, 0), taken) == least


def test_pinned_process_sees_one_gpu():
    """CUDA numbers GPUs as NVML does."""
    environ = {"CUDA_VISIBLE_DEVICES": "0,1"}
    gpus.pin(3, environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("environ", "visible"),
    [
        pytest.param({}, [0, 1, 2], id="not set"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1"}, [1], id="pinned"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "2, 0"}, [2, 0], id="in that order"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "5,1"}, [], id="not present"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0,-1,2"}, [0], id="up to no number"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0,,2"}, [0], id="up to a gap"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0,0"}, [], id="one twice"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "MIG-0"}, [], id="a part of one"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-2a,GPU-0"}, [2, 0], id="by UUID"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, [], id="empty"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "-1"}, [], id="none wanted"),
    ],
)
def test_visible_gpus_follow_cuda_visible_devices(monkeypatch, environ, visible):
    """The variable selects GPUs as in CUDA; without it all are visible."""
    monkeypatch.setattr(gpus, "pynvml", FakeNvml(GIB, GIB, GIB))
    assert [gpu.number for gpu in gpus.visible(environ)] == visible
