"""The stand-in for an accelerator: its time, its memory, its one device."""

import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from app.engines import simulated
from app.engines.simulated import SimulatedEngine, Simulation
from app.errors import ModelLoadError, OutOfDeviceMemory
from app.settings import Settings

PATIENCE_S = 10


def batch(*rows):
    return {"input": np.array(rows, np.float32)}


def never(seconds):
    raise AssertionError(f"slept {seconds} s")


class WatchedLock:
    """A lock that tells when somebody finds it taken."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.found_taken = threading.Event()

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            self.found_taken.set()
            self.lock.acquire()

    def __exit__(self, *raised):
        self.lock.release()


@pytest.mark.parametrize(
    ("base_ms", "per_row_ms", "rows", "took_s"),
    [(300, 0, 1, 0.3), (300, 0, 5, 0.3), (100, 20, 1, 0.12), (100, 20, 5, 0.2)],
)
def test_time(base_ms, per_row_ms, rows, took_s):
    """A batch takes the base and so much for each row."""
    slept = []
    simulation = Simulation(base_ms, per_row_ms, input_shape=(1,), outputs=1)
    SimulatedEngine(simulation, slept.append).run(batch(*[[0]] * rows))
    assert slept == [pytest.approx(took_s)]


def test_echo():
    """A row's answer is its first values, whatever its shape."""
    simulation = Simulation(input_shape=(2, 2), outputs=3)
    engine = SimulatedEngine(simulation, lambda seconds: None)
    outputs = engine.run(batch([[1, 2], [3, 4]], [[5, 6], [7, 8]]))
    assert outputs["output"].tolist() == [[1, 2, 3], [5, 6, 7]]
    assert outputs["output"].dtype == np.float32


def test_answers_are_their_own():
    """An answer does not change with the batch that it came from."""
    engine = SimulatedEngine(Simulation(outputs=1), lambda seconds: None)
    rows = batch([1] * 64)
    outputs = engine.run(rows)
    rows["input"][:] = 7
    assert outputs["output"].tolist() == [[1]]


def test_one_batch_at_a_time(monkeypatch):
    """A second batch does not begin before the device has finished the first."""
    device = WatchedLock()
    monkeypatch.setattr(simulated, "threading", SimpleNamespace(Lock=lambda: device))
    begun, finish = [], threading.Event()

    def work(seconds):
        begun.append(seconds)
        assert finish.wait(PATIENCE_S)

    engine = SimulatedEngine(Simulation(), work)
    threads = [
        threading.Thread(target=engine.run, args=(batch([0] * 64),)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    waits = device.found_taken.wait(PATIENCE_S)
    begun_meanwhile = len(begun)
    finish.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert waits
    assert begun_meanwhile == 1
    assert len(begun) == 2


def test_device_is_free_after_an_error():
    """A batch that fails on the device leaves it free for the next."""
    engine = SimulatedEngine(Simulation(), never)
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"slept 0\.3 s"):
            engine.run(batch([0] * 64))


def test_memory():
    """More rows than the device holds raise at once, with both numbers; as many fit."""
    simulation = Simulation(input_shape=(1,), outputs=1, memory_rows=2)
    with pytest.raises(OutOfDeviceMemory, match=r"batch of 3 rows .* holds 2$"):
        SimulatedEngine(simulation, never).run(batch([1], [2], [3]))
    engine = SimulatedEngine(simulation, lambda seconds: None)
    assert len(engine.run(batch([1], [2]))["output"]) == 2


def test_open_engine(tmp_path):
    """The file's values end in the engine; what it leaves out has its default."""
    file = tmp_path / "simulated.json"
    file.write_text('{"input_shape": [4, 2], "outputs": 3}')
    engine = simulated.open_engine(file, Settings())
    (taken,), (given) = (
        engine.signatures["serving_default"].inputs,
        engine.signatures["serving_default"].outputs[0],
    )
    assert (taken.name, taken.dtype, taken.shape) == ("input", np.float32, (4, 2))
    assert (given.name, given.dtype, given.shape) == ("output", np.float32, (3,))
    engine.close()
    engine.close()


def test_parse():
    """Every value can be set."""
    values = {
        "base_ms": 1.5,
        "per_row_ms": 2,
        "input_shape": [3],
        "outputs": 2,
        "memory_rows": 20,
    }
    assert Simulation.parse(json.dumps(values)) == Simulation(1.5, 2, (3,), 2, 20)
    assert Simulation.parse("{}") == Simulation()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"base_ms"',
        '{"base": 1}',
        '{"base_ms": -1}',
        '{"base_ms": "300"}',
        '{"base_ms": null}',
        '{"base_ms": NaN}',
        '{"base_ms": Infinity}',
        '{"per_row_ms": -0.1}',
        '{"per_row_ms": Infinity}',
        '{"input_shape": []}',
        '{"input_shape": 64}',
        '{"input_shape": "64"}',
        '{"input_shape": [0]}',
        '{"input_shape": [-8, -8]}',
        '{"input_shape": [64.5]}',
        '{"input_shape": [null]}',
        '{"outputs": 0}',
        '{"outputs": 65}',
        '{"outputs": 2.5}',
        '{"outputs": true}',
        '{"memory_rows": 0}',
        '{"memory_rows": 1.5}',
        '{"memory_rows": "20"}',
    ],
)
def test_parse_refuses(text):
    """What makes no simulation is refused when it is read, by the file's name."""
    with pytest.raises(ModelLoadError, match=r"^simulated\.json: "):
        Simulation.parse(text)
