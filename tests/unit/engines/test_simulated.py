"""The simulated accelerator: batch time, device memory, one batch at a time."""

import json
import threading
import time

import numpy as np
import pytest

from app.engines import simulated
from app.engines.simulated import SimulatedEngine, Simulation
from app.errors import ModelLoadError, OutOfDeviceMemory
from app.settings import Settings
from testing.clients import in_parallel


def batch(*rows):
    return {"input": np.array(rows, np.float32)}


def never(seconds):
    raise AssertionError(f"slept {seconds} s")


@pytest.mark.parametrize(
    ("base_ms", "per_row_ms", "rows", "took_s"),
    [(300, 0, 1, 0.3), (300, 0, 5, 0.3), (100, 20, 1, 0.12), (100, 20, 5, 0.2)],
)
def test_batch_takes_base_time_and_time_per_row(base_ms, per_row_ms, rows, took_s):
    """The simulated time is base_ms plus per_row_ms for each row."""
    slept = []
    simulation = Simulation(base_ms, per_row_ms, input_shape=(1,), outputs=1)
    SimulatedEngine(simulation, slept.append).run(batch(*[[0]] * rows))
    assert slept == [pytest.approx(took_s)]


def test_output_is_the_first_values_of_each_row():
    """A row of any shape is flattened and cut to `outputs` values."""
    simulation = Simulation(input_shape=(2, 2), outputs=3)
    engine = SimulatedEngine(simulation, lambda seconds: None)
    outputs = engine.run(batch([[1, 2], [3, 4]], [[5, 6], [7, 8]]))
    assert outputs["output"].tolist() == [[1, 2, 3], [5, 6, 7]]
    assert outputs["output"].dtype == np.float32


def test_outputs_do_not_share_memory_with_inputs():
    """An output stays the same when the batch is overwritten."""
    engine = SimulatedEngine(Simulation(outputs=1), lambda seconds: None)
    rows = batch([1] * 64)
    outputs = engine.run(rows)
    rows["input"][:] = 7
    assert outputs["output"].tolist() == [[1]]


def test_device_runs_one_batch_at_a_time():
    """Batches of several threads never overlap on the device."""
    running, most_running, runs = 0, 0, 0

    def work(seconds):
        nonlocal running, most_running, runs
        running, runs = running + 1, runs + 1
        most_running = max(most_running, running)
        time.sleep(0.02)
        running -= 1

    engine = SimulatedEngine(Simulation(), work)
    in_parallel(lambda _: engine.run(batch([0] * 64)), 4)
    assert (most_running, runs) == (1, 4)


def test_device_is_free_after_a_failed_batch():
    """A batch that raises on the device leaves it free for the next batch."""
    engine = SimulatedEngine(Simulation(), never)
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"slept 0\.3 s"):
            engine.run(batch([0] * 64))


def test_batch_above_memory_rows_is_out_of_memory():
    """More rows than memory_rows raise out of memory with both numbers; as many fit."""
    simulation = Simulation(input_shape=(1,), outputs=1, memory_rows=2)
    with pytest.raises(OutOfDeviceMemory, match=r"batch of 3 rows .* holds 2$"):
        SimulatedEngine(simulation, never).run(batch([1], [2], [3]))
    engine = SimulatedEngine(simulation, lambda seconds: None)
    assert len(engine.run(batch([1], [2]))["output"]) == 2


def test_open_engine_reads_simulated_json(tmp_path):
    """The file's values set the signature; missing ones have defaults."""
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


def test_every_value_can_be_set():
    """All five values are read; an empty object has the defaults."""
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
def test_invalid_simulated_json_is_a_load_error(text):
    """Malformed JSON, unknown keys and values out of range name the file."""
    with pytest.raises(ModelLoadError, match=r"^simulated\.json: "):
        Simulation.parse(text)


@pytest.mark.parametrize(
    "content",
    [b'{"device": "\xff"}', b'{"device": ' + b"[" * 100_000],
    ids=["not UTF-8", "too many brackets"],
)
def test_unreadable_simulated_json_is_a_load_error(tmp_path, content):
    """The error names the file."""
    file = tmp_path / "simulated.json"
    file.write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"^simulated\.json: "):
        simulated.open_engine(file, Settings())


def test_batch_that_takes_no_time_does_not_sleep():
    """Even a sleep of no time would have another thread go first."""
    simulation = Simulation(base_ms=0, input_shape=(2,), outputs=2)
    outputs = SimulatedEngine(simulation, never).run(batch([1, 2]))
    assert outputs["output"].tolist() == [[1, 2]]


def test_models_that_name_a_device_share_it():
    """A batch of one waits for that of the other; others have devices of their own."""
    order = []

    def run(device, meanwhile=lambda: None):
        def sleep(seconds):
            order.append(device)
            meanwhile()

        simulation = Simulation(outputs=1, device=device)
        SimulatedEngine(simulation, sleep).run(batch([1] * 64))

    other = threading.Thread(target=run, args=("one",))

    def meanwhile():
        other.start()
        run("another")
        run("")
        assert other.is_alive()

    run("one", meanwhile)
    other.join(10)
    assert order == ["one", "another", "", "one"]
