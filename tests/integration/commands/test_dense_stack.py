"""The latency fit of the model `big`, with models that advance a fake clock."""

from functools import partial

import numpy as np
import pytest

from app.commands import measurement
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import ModelLoadError
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW
_SCORE_LAYERS = 1
# Engines that measure a layer before the first try.
_PROBES = 2


@pytest.fixture
def machine(keras, monkeypatch):
    """A machine with a clock that its models advance."""
    # Not at the top: tests that are not run must not import TensorFlow.
    from app.commands.new_models import dense_stack  # noqa: PLC0415

    machine = _Machine(dense_stack)
    median_ms = partial(measurement.median_ms, clock=lambda: machine.now_s)
    monkeypatch.setattr(measurement, "median_ms", median_ms)
    monkeypatch.setattr(
        dense_stack, "KerasTensorFlowEngine", lambda model: _Engine(machine, model)
    )
    return machine


class _Machine:
    def __init__(self, dense_stack):
        self.now_s = 0.0
        self.engines = 0
        self.dense_stack = dense_stack

    def took_ms(self, _nth_engine, layers, _width):
        """Return the duration of a run: a millisecond for each layer."""
        return layers

    def fit(self, latency_ms, width=64, max_bytes=1 << 20, tolerance=0.2):
        return self.dense_stack.fit(
            latency_ms, width, max_bytes, tolerance, lambda _: None
        )


class _Engine:
    def __init__(self, machine, model):
        ((_, width),) = [row.shape for row in model.inputs]
        spec = TensorSpec("row", np.dtype(np.float32), (width,))
        self.signatures = {DEFAULT_SIGNATURE: Signature((spec,), ())}
        self._machine = machine
        calls = sum(len(each["inbound_nodes"]) for each in model.get_config()["layers"])
        self._model = machine.engines, calls - _SCORE_LAYERS, width
        machine.engines += 1

    def run(self, _batch):
        self._machine.now_s += self._machine.took_ms(*self._model) / 1000


def _tries_take(machine, *times_ms):
    machine.took_ms = lambda nth, layers, _: (
        layers if nth < _PROBES else times_ms[nth - _PROBES]
    )


def test_number_of_layers_fits_the_latency(machine):
    """Layers of 1 ms make a model of 30 ms when there are 30 of them."""
    assert machine.fit(30).layers == 30


def test_layers_share_weights_above_max_bytes(machine):
    """Of 40 layers of 16 KiB, 16 have weights of their own if 256 KiB are allowed."""
    stack = machine.fit(40, max_bytes=256 << 10)
    assert (stack.layers, stack.distinct) == (40, 16)


def test_one_layer_above_max_bytes_is_an_error(machine):
    """A layer above the limit is refused before any is built, with what may help."""
    machine.fit(30, width=256, max_bytes=256 << 10)
    built = machine.engines
    with pytest.raises(ModelLoadError, match=r"256 x 256 .*--width.*--max-gib"):
        machine.fit(30, width=256, max_bytes=(256 << 10) - 1)
    assert machine.engines == built


def test_width_is_halved_if_layers_are_too_slow(machine):
    """If a layer takes more than a fifth of the latency, the width is halved."""
    machine.took_ms = lambda _nth, layers, width: layers * width / 64
    stack = machine.fit(8, width=256)
    assert (stack.width, stack.layers) == (64, 8)


def test_fit_corrects_the_first_guess(machine):
    """Layers that take a third of the first measurement become three times as many."""
    machine.took_ms = lambda nth, layers, _: layers * (3 if nth < _PROBES else 1)
    assert machine.fit(30).layers == 30


def test_fit_takes_the_closest_of_six_tries(machine):
    """The second try, off by 15 %, is the model, not the last."""
    _tries_take(machine, 45, 34.5, 45, 45, 45, 45)
    assert machine.fit(30).layers == 20


def test_fit_that_never_comes_close_is_an_error(machine):
    """Tries that are all off by half are an error with the options to change."""
    _tries_take(machine, *[45] * 6)
    with pytest.raises(ModelLoadError, match=r"within 20% of 30 ms.*by 50%.*tolerance"):
        machine.fit(30)


def test_larger_tolerance_accepts_the_first_try(machine):
    """With a tolerance of 1, the first try, off by nearly half, is the model."""
    _tries_take(machine, 44)
    assert machine.fit(30, tolerance=1).layers == 30


def test_noise_in_the_first_measurement_is_corrected(machine):
    """If the deeper stack seems no slower, the first guess is still usable."""
    machine.took_ms = lambda nth, layers, _: 12 if nth < _PROBES else layers
    assert machine.fit(30).layers == 30


def test_noise_does_not_ask_for_more_layers_than_keras_supports(machine):
    """Two stacks that seem to take no time are no reason to refuse a latency."""
    machine.took_ms = lambda nth, layers, _: 0.1 if nth < _PROBES else layers
    assert machine.fit(30).layers == 30


def test_more_layers_than_keras_supports_is_an_error(machine):
    """A stack of a thousand layers is refused with the option to change."""
    with pytest.raises(ModelLoadError, match=r"1000 layers of 64 x 64 .*--width"):
        machine.fit(1000)
