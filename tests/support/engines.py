"""Engines for tests: one that works, and one for each kind of failure."""

import queue
import threading
from collections.abc import Callable

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors, TensorSpec
from app.errors import OutOfDeviceMemory, RefusedInput

_TIMEOUT_S = 10
_FLOAT32 = np.dtype(np.float32)


class Echo:
    """Returns the first value of each row; `batches` are the inputs it ran."""

    platform = "echo"

    def __init__(self) -> None:
        signature = Signature(
            inputs=(TensorSpec("input", _FLOAT32, (None,)),),
            outputs=(TensorSpec("output", _FLOAT32, (1,)),),
        )
        self.signatures = {DEFAULT_SIGNATURE: signature}
        self.batches: list[Array] = []
        self.closed = 0

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        # The caller may overwrite the batch afterwards.
        self.batches.append(batch["input"].copy())
        return {"output": batch["input"][:, :1]}

    def close(self) -> None:
        self.closed += 1

    def unblock(self) -> None:
        """Do nothing; engines that block are released."""

    def seen(self) -> list[list[float]]:
        """Return the first values of the rows in each batch."""
        return [batch[:, 0].tolist() for batch in self.batches]


class Computes:
    """Returns what a function computes from a batch."""

    platform = "function"

    def __init__(
        self, compute: Callable[[Tensors], Tensors], signature: Signature
    ) -> None:
        self._compute = compute
        self.signatures = {DEFAULT_SIGNATURE: signature}

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        return self._compute(batch)

    def close(self) -> None:
        """Do nothing."""


class Raises(Echo):
    """Raises `error` for a batch that contains the value `poison`, else echoes."""

    poison = 13.0

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        outputs = super().run(batch)
        if (batch["input"] == self.poison).any():
            raise self.error
        return outputs


class Fails(Echo):
    """Raises `error` for batches of these sizes, else echoes."""

    def __init__(self, error: BaseException, *sizes: int) -> None:
        super().__init__()
        self.error, self.sizes = error, sizes

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        outputs = super().run(batch)
        if len(batch["input"]) in self.sizes:
            raise self.error
        return outputs


class TooFewRows(Echo):
    """Drops the last row."""

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        return {"output": super().run(batch)["output"][:-1]}


class OneValue(Echo):
    """Returns a single value for all rows."""

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        return {"output": super().run(batch)["output"].sum()}


class OutputMissing(Echo):
    """Returns an output whose name is not in the signature."""

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        return {"other": super().run(batch)["output"]}


class OutputBeside(Echo):
    """Returns an additional output first, which is not in the signature or in rows."""

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        return {"state": np.zeros(1, np.float32), **super().run(batch)}


class Blocks(Echo):
    """Sets `started` when a batch begins; blocks each batch until released."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self._released = threading.Event()

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        self.started.set()
        assert self._released.wait(_TIMEOUT_S), "the test never released the engine"
        return super().run(batch)

    def unblock(self) -> None:
        self._released.set()

    def block(self) -> None:
        """Block again after a release."""
        self.started.clear()
        self._released.clear()

    def wait_until_started(self) -> None:
        assert self.started.wait(_TIMEOUT_S), "no batch began"


class Puppet(Echo):
    """Finishes one batch, or fails it, each time the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: queue.SimpleQueue[Array | None] = queue.SimpleQueue()
        self._orders: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._free = False

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        outputs = super().run(batch)
        self._begun.put(batch["input"])
        if not self._free:
            error = self._orders.get(timeout=_TIMEOUT_S)
            if error is not None:
                raise error
        return outputs

    def rest(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait as a JobQueue does; `begun` returns None when the queue is empty."""
        self._begun.put(None)
        condition.wait(timeout)

    def begun(self) -> Array | None:
        """Block until the next batch begins and return it, or None if there is none."""
        return self._begun.get(timeout=_TIMEOUT_S)

    def finish(self, error: BaseException | None = None) -> None:
        """Let the running batch end, or fail with an error."""
        self._orders.put(error)

    def unblock(self) -> None:
        """Run all batches without orders from now on."""
        self._free = True
        self.finish()


class Poisoned(Echo):
    """Raises for a batch that contains one of the marked values, else echoes."""

    def __init__(self, *marks: float) -> None:
        super().__init__()
        self.marks: tuple[float, ...] = marks

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        outputs = super().run(batch)
        if np.isin(batch["input"], self.marks).any():
            raise ValueError("a marked row")
        return outputs


class Refuses(Poisoned):
    """Refuses a batch that contains one of the marked values as invalid."""

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        try:
            return super().run(batch)
        except ValueError as error:
            raise RefusedInput("the model refuses this input") from error


class Limited(Echo):
    """Simulates memory for `rows` rows; counts `failures` of larger batches."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.failures = 0

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        outputs = super().run(batch)
        if len(batch["input"]) > self.rows:
            self.failures += 1
            raise OutOfDeviceMemory(f"{len(batch['input'])} rows do not fit")
        return outputs
