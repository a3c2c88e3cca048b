"""Runs .keras and .h5 files on Keras's JAX backend, without TensorFlow.

JAX compiles a model for each batch size, so batches are padded to one of a few sizes,
all of which are compiled when the model is loaded.
"""

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import jax
import keras
import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors
from app.engines.batch_sizes import batch_sizes, pad, split
from app.engines.jax.memory import device_bytes, needed_bytes
from app.engines.keras.files import functional, load, signature_of, weight_bytes
from app.engines.loading import error_summary, refuse_strings
from app.engines.reference import tensorflow_reference
from app.engines.refusal import does_not_fit
from app.errors import ModelLoadError
from app.settings import Settings

_log = logging.getLogger(__name__)
# Bounds the cache: clients may send any shape to a model with free sizes.
_MAX_PROGRAMS = 128
# In the text of XLA's error when a device's memory is full.
_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"

_Program = Callable[..., Sequence[jax.Array]]


class KerasJaxEngine:
    """A Keras model with a compiled program for each input shape; `sizes` increase."""

    platform = "jax_keras"

    def __init__(
        self,
        model: keras.Model,
        sizes: Sequence[int],
        signature: Signature | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        """Prepare the model; compile nothing yet.

        `signature` is TensorFlow's, if known: on JAX, Keras declares int32 for much
        that is int64. `memory_bytes` replaces what JAX says of the device.

        Raises:
            ModelLoadError: the model has no fixed inputs, or string inputs or outputs.
        """
        self._model = functional(model)
        signature = signature or signature_of(self._model)
        refuse_strings(signature)
        # So that a batch is padded where its rows are copied anyway.
        signature = replace(signature, padded_sizes=tuple(sizes))
        self.signatures: Mapping[str, Signature] = {DEFAULT_SIGNATURE: signature}
        self.weight_bytes = weight_bytes(model)
        self._sizes = sizes
        # Passed as arguments: constants would be copied into each program.
        self._weights = [
            [variable.value for variable in self._model.trainable_variables],
            [variable.value for variable in self._model.non_trainable_variables],
        ]
        self._memory_bytes = memory_bytes or device_bytes()
        # None: it needs more memory than there is.
        self._programs: OrderedDict[tuple[tuple[int, ...], ...], _Program | None]
        self._programs = OrderedDict()
        self._compiling = threading.Lock()

    def compile_all(self) -> None:
        """Compile for all batch sizes, so that no request waits for it.

        If the model leaves sizes free, only requests have the shapes: log a warning.

        Raises:
            ModelLoadError: JAX can't compile the model.
        """
        inputs = self.signatures[DEFAULT_SIGNATURE].inputs
        if any(None in spec.shape for spec in inputs):
            _log.warning(
                "the model leaves sizes free: JAX compiles it for each new shape, "
                "while the client who sent it waits"
            )
            return
        for number, rows in enumerate(self._sizes, 1):
            began_at = time.monotonic()
            try:
                self._program({spec.name: spec.blank(rows) for spec in inputs})
            except Exception as error:  # Keras and JAX raise whatever they raise
                raise ModelLoadError(
                    f"JAX can't compile it for {rows} rows: {error_summary(error)}"
                ) from error
            _log.info(
                "compiled for %d rows in %.1f s (%d of %d)",
                *(rows, time.monotonic() - began_at, number, len(self._sizes)),
            )

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch, padded to the next size; split one above the largest size.

        Raises:
            OutOfDeviceMemory: XLA's RESOURCE_EXHAUSTED.
        """
        signature = self.signatures[signature_name]
        rows = len(batch[signature.inputs[0].name])
        parts = [
            self._compute(batch, start, stop, size)
            for start, stop, size in split(rows, self._sizes)
        ]
        return {
            spec.name: np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
            for spec, arrays in zip(
                signature.outputs, zip(*parts, strict=True), strict=True
            )
        }

    def close(self) -> None:
        """Drop the programs and the weights."""
        self._programs.clear()
        self._weights = []

    def _compute(self, batch: Tensors, start: int, stop: int, size: int) -> list[Array]:
        padded = {name: pad(array[start:stop], size) for name, array in batch.items()}
        inputs = [
            padded[spec.name] for spec in self.signatures[DEFAULT_SIGNATURE].inputs
        ]
        try:
            program = self._program(padded)
            if program is None:
                raise does_not_fit(size)
            # Execution is asynchronous: an error of the device may surface at its end.
            arrays = jax.device_get(program(*self._weights, *inputs))
        except jax.errors.JaxRuntimeError as error:
            if _OUT_OF_MEMORY not in str(error):
                raise
            raise does_not_fit(size) from error
        return [array[: stop - start] for array in arrays]

    def _program(self, batch: Tensors) -> _Program | None:
        """Return the program for batches of this shape; compile it if it is new.

        None: it needs more memory than there is.
        """
        inputs = self.signatures[DEFAULT_SIGNATURE].inputs
        shapes = tuple(batch[spec.name].shape for spec in inputs)
        with self._compiling:
            if shapes not in self._programs:
                specs = [
                    jax.ShapeDtypeStruct(shape, spec.dtype)
                    for shape, spec in zip(shapes, inputs, strict=True)
                ]
                program = jax.jit(self._call).lower(*self._weights, *specs).compile()
                fits = needed_bytes(program) <= self._memory_bytes
                self._programs[shapes] = cast(_Program, program) if fits else None
            self._programs.move_to_end(shapes)
            if len(self._programs) > _MAX_PROGRAMS:
                self._programs.popitem(last=False)
            return self._programs[shapes]

    def _call(
        self, trainable: Any, non_trainable: Any, *inputs: jax.Array
    ) -> list[jax.Array]:
        packed = keras.tree.pack_sequence_as(self._model.input, list(inputs))
        outputs, _ = self._model.stateless_call(
            trainable, non_trainable, packed, training=False
        )
        specs = self.signatures[DEFAULT_SIGNATURE].outputs
        flat = keras.tree.flatten(outputs)
        return [
            array.astype(spec.dtype) for array, spec in zip(flat, specs, strict=True)
        ]


def open_engine(file: Path, settings: Settings) -> KerasJaxEngine:
    """Load and compile a .keras or .h5 file; check its outputs against TensorFlow's.

    Raises:
        ModelLoadError: Keras can't read it, JAX can't run it, or outputs differ.
    """
    if keras.config.backend() != "jax":
        raise ModelLoadError("Keras runs on another backend in this process already")
    limit_gpu_memory(settings.gpu_memory_fraction)
    sizes = batch_sizes(settings.max_batch_size, settings.allowed_batch_sizes)
    if find_spec("tensorflow") is None:
        _log.warning("no TensorFlow is installed, so no answers were compared")
        engine = KerasJaxEngine(load(file), sizes)
    else:
        found = tensorflow_reference(file, user_code=settings.user_code)
        engine = KerasJaxEngine(load(file), sizes, found.signature)
        found.check(engine)
    engine.compile_all()
    return engine


def limit_gpu_memory(fraction: float | None) -> None:
    """Have JAX allocate this share of a GPU at once, or let it grow on demand.

    JAX's default is three quarters. It reads the setting before it first uses a GPU;
    later calls change nothing.
    """
    if fraction is None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    else:
        # JAX fails if the older name is set as well.
        os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)
        os.environ["XLA_CLIENT_MEM_FRACTION"] = str(fraction)
