"""The big dummy model is fitted to a time; here models take what the test says."""

from functools import partial

import numpy as np
import pytest

from app.commands import dense_stack, fitting, timing
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import ModelLoadError

_SCORES = 1
# Engines that time a layer before the first try, while the width is right.
_PROBES = 2


@pytest.fixture
def machine(monkeypatch):
    """A machine whose models move its clock."""
    machine = _Machine()
    median_ms = partial(timing.median_ms, clock=lambda: machine.now_s)
    monkeypatch.setattr(fitting, "median_ms", median_ms)
    monkeypatch.setattr(
        dense_stack, "KerasTensorFlowEngine", lambda model: _Engine(machine, model)
    )
    return machine


class _Machine:
    now_s = 0.0
    engines = 0

    def took_ms(self, _nth_engine, layers, _width):
        """What one run takes; a millisecond for each layer."""
        return layers


class _Engine:
    def __init__(self, machine, model):
        ((_, width),) = [row.shape for row in model.inputs]
        spec = TensorSpec("row", np.dtype(np.float32), (width,))
        self.signatures = {DEFAULT_SIGNATURE: Signature((spec,), ())}
        self._machine = machine
        calls = sum(len(each["inbound_nodes"]) for each in model.get_config()["layers"])
        self._model = machine.engines, calls - _SCORES, width
        machine.engines += 1

    def run(self, _batch):
        self._machine.now_s += self._machine.took_ms(*self._model) / 1000


def _tries_take(machine, *times_ms):
    machine.took_ms = lambda nth, layers, _: (
        layers if nth < _PROBES else times_ms[nth - _PROBES]
    )


def _fit(latency_ms, width=64, max_bytes=1 << 20, tolerance=0.2):
    return dense_stack.fit(latency_ms, width, max_bytes, tolerance, lambda _: None)


def test_as_many_layers_as_the_time_takes(machine):
    """Layers of 1 ms make a model of 30 ms when there are 30 of them."""
    assert _fit(30).layers == 30


def test_weights_are_used_again_beyond_the_most_bytes(machine):
    """Of 40 layers of 16 KiB 16 have weights of their own where 256 KiB are allowed."""
    stack = _fit(40, max_bytes=256 << 10)
    assert (stack.layers, stack.distinct) == (40, 16)


def test_a_layer_beyond_the_most_bytes(machine):
    """Where one layer of 256 KiB is too much, nothing is built, with what may help."""
    _fit(30, width=256, max_bytes=256 << 10)
    built = machine.engines
    with pytest.raises(ModelLoadError, match=r"256 x 256 .*--width.*--max-gib"):
        _fit(30, width=256, max_bytes=(256 << 10) - 1)
    assert machine.engines == built


def test_narrower_layers_where_few_are_too_slow(machine):
    """Where a layer takes more than a fifth of the time, half the width is taken."""
    machine.took_ms = lambda _nth, layers, width: layers * width / 64
    stack = _fit(8, width=256)
    assert (stack.width, stack.layers) == (64, 8)


def test_the_layers_are_corrected_by_what_they_take(machine):
    """Layers that take a third of what the first look said are three times as many."""
    machine.took_ms = lambda nth, layers, _: layers * (3 if nth < _PROBES else 1)
    assert _fit(30).layers == 30


def test_the_closest_try_is_taken_when_none_is_close(machine):
    """Of six tries the second, off by 15 %, is the model, and not the last."""
    _tries_take(machine, 45, 34.5, 45, 45, 45, 45)
    assert _fit(30).layers == 20


def test_a_machine_that_is_never_close_is_an_error(machine):
    """Tries that are all off by half are refused, with what may help."""
    _tries_take(machine, *[45] * 6)
    with pytest.raises(ModelLoadError, match=r"within 20% of 30 ms.*by 50%.*tolerance"):
        _fit(30)


def test_a_larger_tolerance_takes_what_there_is(machine):
    """With a tolerance of 1 the first try, off by nearly half, is the model."""
    _tries_take(machine, 44)
    assert _fit(30, tolerance=1).layers == 30


def test_a_first_look_that_noise_spoils(machine):
    """Where the deeper stack seems to take no longer, the first guess is still sane."""
    machine.took_ms = lambda nth, layers, _: 12 if nth < _PROBES else layers
    assert _fit(30).layers == 30


def test_more_layers_than_keras_takes(machine):
    """What would take a thousand layers is refused, with what may help."""
    with pytest.raises(ModelLoadError, match=r"1000 layers of 64 x 64 .*--width"):
        _fit(1000)
