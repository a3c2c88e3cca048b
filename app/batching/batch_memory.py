"""The memory in which a batch's rows are put under each other, kept between batches.

A new array of some megabytes costs more than the copy into it: the system hands out its
pages one by one, each time. And TensorFlow takes an array as it is, without a copy of
its own, where that is aligned, as this memory is.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from app.engines.base import Array

# What Eigen wants of a tensor's address, in bytes.
_ALIGNMENT = 64


class BatchMemory:
    """One batch at a time: `put` overwrites what the batch before had by that name."""

    def __init__(self) -> None:
        """Start without memory."""
        self._memory: dict[str, npt.NDArray[np.uint8]] = {}

    def put(self, name: str, parts: Sequence[Array]) -> Array:
        """Return the rows of all parts, which share dtype and row shape, as one array.

        A memoryview copies without letting go of the interpreter's lock. NumPy lets go
        for each part, and among many request threads the batching thread would wait
        for it again as often.
        """
        first = parts[0]
        if first.dtype.hasobject:
            return np.concatenate(parts)
        memory = self._at_least(sum(part.nbytes for part in parts), name)
        view, end = memory.data, 0
        for part in parts:
            begin, end = end, end + part.nbytes
            rows = np.ascontiguousarray(part)
            view[begin:end] = rows.reshape(-1).view(np.uint8).data
        shape = (sum(map(len, parts)), *first.shape[1:])
        return memory[:end].view(first.dtype).reshape(shape)

    def own(self, array: Array) -> Array:
        """The array; a copy of it where it is a view of what the next batch overwrites.

        Some models give back what they are given.
        """
        is_view = any(
            np.may_share_memory(array, each) for each in self._memory.values()
        )
        return array.copy() if is_view else array

    def _at_least(self, size: int, name: str) -> npt.NDArray[np.uint8]:
        """So many bytes or more."""
        memory = self._memory.get(name)
        if memory is None or memory.nbytes < size:
            whole = np.empty(size + _ALIGNMENT, np.uint8)
            begin = -whole.ctypes.data % _ALIGNMENT
            memory = self._memory[name] = whole[begin : begin + size]
        return memory


class BatchMemories:
    """As many stacks as there are batches side by side: one, unless batching is off."""

    def __init__(self) -> None:
        """Start with none."""
        self._idle: deque[BatchMemory] = deque()

    @contextmanager
    def one(self) -> Iterator[BatchMemory]:
        """A stack for one batch.

        After an error it isn't used again: who knows what still reads it.
        """
        try:
            stack = self._idle.pop()
        except IndexError:
            stack = BatchMemory()
        yield stack
        self._idle.append(stack)
