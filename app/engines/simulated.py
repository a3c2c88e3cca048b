"""A stand-in for an accelerator that holds one batch at a time.

A batch takes `base_ms + per_row_ms * rows`; a row's answer is its first `outputs`
values. For load tests and planning where no GPU is at hand: figures that come
from it are called simulated wherever they are shown.
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


@dataclass(frozen=True)
class Simulation:
    """The content of simulated.json."""

    base_ms: float = 300.0
    per_row_ms: float = 0.0
    input_shape: tuple[int, ...] = (64,)
    outputs: int = 10
    memory_rows: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Simulation":
        """Read the JSON text of a simulated.json.

        Raises:
            ModelLoadError: not JSON, an unknown key, or a value that makes no sense.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            values["input_shape"] = tuple(values.get("input_shape", cls.input_shape))
            made = cls(**values)
            sizes = [*made.input_shape, made.outputs]
            if made.memory_rows is not None:
                sizes.append(made.memory_rows)
            sane = (
                0 <= made.base_ms < math.inf
                and 0 <= made.per_row_ms < math.inf
                and all(type(size) is int and size > 0 for size in sizes)
                and made.outputs <= math.prod(made.input_shape)
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise ModelLoadError(f"simulated.json: {error}") from error
        if not sane:
            raise ModelLoadError(
                "simulated.json: times must not be negative, sizes and memory_rows "
                "must be whole and positive, outputs at most the values of one row"
            )
        return made


class SimulatedEngine:
    """An Engine whose device does nothing but take its time."""

    platform = "simulated"

    def __init__(
        self, simulation: Simulation, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Store the simulation; `sleep` takes seconds."""
        self._simulation = simulation
        self._sleep = sleep
        self._device = threading.Lock()
        float32 = np.dtype(np.float32)
        signature = Signature(
            inputs=(TensorSpec("input", float32, simulation.input_shape),),
            outputs=(TensorSpec("output", float32, (simulation.outputs,)),),
        )
        self.signatures = {DEFAULT_SIGNATURE: signature}

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Hold the device for the simulated time, then echo.

        Raises:
            OutOfDeviceMemory: more rows than `memory_rows`.
        """
        del signature_name  # it has one only
        (rows,) = batch.values()
        limit = self._simulation.memory_rows
        if limit is not None and len(rows) > limit:
            raise OutOfDeviceMemory(
                f"a batch of {len(rows)} rows does not fit: the simulated device "
                f"holds {limit}"
            )
        took_ms = self._simulation.base_ms + self._simulation.per_row_ms * len(rows)
        with self._device:
            self._sleep(took_ms / 1000)
        flat = rows.reshape(len(rows), -1)
        return {"output": flat[:, : self._simulation.outputs].copy()}

    def close(self) -> None:
        """Nothing to let go of."""


def open_engine(file: Path, settings: Settings) -> SimulatedEngine:
    """Open a simulated.json; no setting changes it."""
    del settings
    return SimulatedEngine(Simulation.parse(file.read_text()))
