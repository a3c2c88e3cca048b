"""A stand-in for an accelerator that holds one batch at a time.

A batch takes `base_ms + per_row_ms * rows`; a row's output is its first `outputs`
values. For load tests and planning without a GPU: figures from it are marked as
simulated wherever they are shown.
"""

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Signature, Tensors, TensorSpec
from app.errors import ModelLoadError, OutOfDeviceMemory
from app.settings import Settings

# Held while a batch runs, by the device's name.
_devices: dict[str, threading.Lock] = {}


@dataclass(frozen=True)
class Simulation:
    """The content of simulated.json.

    Models of one process that name the same `device` share it; "": one of its own.
    """

    base_ms: float = 300.0
    per_row_ms: float = 0.0
    input_shape: tuple[int, ...] = (64,)
    outputs: int = 10
    memory_rows: int | None = None
    device: str = ""

    @classmethod
    def parse(cls, text: str | bytes) -> "Simulation":
        """Return the simulation in the JSON of a simulated.json.

        Raises:
            ModelLoadError: not JSON, an unknown key, or a value out of range.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            values["input_shape"] = tuple(values.get("input_shape", cls.input_shape))
            parsed = cls(**values)
            sizes = [*parsed.input_shape, parsed.outputs]
            if parsed.memory_rows is not None:
                sizes.append(parsed.memory_rows)
            valid = (
                0 <= parsed.base_ms < math.inf
                and 0 <= parsed.per_row_ms < math.inf
                and all(type(size) is int and size > 0 for size in sizes)
                and parsed.outputs <= math.prod(parsed.input_shape)
                and isinstance(parsed.device, str)
            )
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ModelLoadError(f"simulated.json: {error}") from error
        if not valid:
            raise ModelLoadError(
                "simulated.json: times must not be negative, sizes and memory_rows "
                "must be whole and positive, outputs at most the values of one row, "
                "device a string"
            )
        return parsed


class SimulatedEngine:
    """An engine that sleeps for the simulated time and returns values of the input."""

    platform = "simulated"

    def __init__(
        self, simulation: Simulation, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Store the simulation; `sleep` takes seconds."""
        self._simulation = simulation
        self._sleep = sleep
        self._device = threading.Lock()
        if simulation.device:
            self._device = _devices.setdefault(simulation.device, self._device)
        float32 = np.dtype(np.float32)
        signature = Signature(
            inputs=(TensorSpec("input", float32, simulation.input_shape),),
            outputs=(TensorSpec("output", float32, (simulation.outputs,)),),
        )
        self.signatures = {DEFAULT_SIGNATURE: signature}

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Hold the device for the simulated time; return the first values of each row.

        Raises:
            OutOfDeviceMemory: more rows than `memory_rows`.
        """
        del signature_name  # there is only one
        (rows,) = batch.values()
        limit = self._simulation.memory_rows
        if limit is not None and len(rows) > limit:
            raise OutOfDeviceMemory(
                f"a batch of {len(rows)} rows does not fit: the simulated device "
                f"holds {limit}"
            )
        duration_ms = self._simulation.base_ms + self._simulation.per_row_ms * len(rows)
        # Even a sleep of no time has the kernel choose another thread.
        if duration_ms:
            with self._device:
                self._sleep(duration_ms / 1000)
        flat = rows.reshape(len(rows), -1)
        return {"output": flat[:, : self._simulation.outputs].copy()}

    def close(self) -> None:
        """Do nothing: no device is held."""


def open_engine(file: Path, settings: Settings) -> SimulatedEngine:
    """Open a simulated.json; settings do not change it."""
    del settings
    return SimulatedEngine(Simulation.parse(file.read_bytes()))
