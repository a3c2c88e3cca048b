"""Memory for a batch's concatenated inputs, kept from batch to batch.

A new array of some megabytes costs more than the copy into it, as the kernel maps its
pages one by one. TensorFlow uses an aligned array without a copy of its own.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from app.engines.base import Array

# Of a tensor's address, as Eigen requires; in bytes.
_ALIGNMENT = 64
# Up to this size a second copy costs less than a view of the bytes.
_SMALL_BYTES = 8192


class BatchMemory:
    """Memory for one batch at a time: each `put` overwrites the input of that name."""

    def __init__(self) -> None:
        self._memory: dict[str, npt.NDArray[np.uint8]] = {}

    def put(self, name: str, parts: Sequence[Array]) -> Array:
        """Return the rows of all parts, which share dtype and row shape, as one array.

        Copying through a memoryview keeps Python's lock (the GIL). NumPy releases it
        for each large part, and the batching thread would have to wait for it again
        among many request threads.
        """
        first = parts[0]
        if first.dtype.hasobject:
            return np.concatenate(parts)
        memory = self._at_least(sum([part.nbytes for part in parts]), name)
        view, end = memory.data, 0
        for part in parts:
            begin, end = end, end + part.nbytes
            if part.nbytes <= _SMALL_BYTES:
                view[begin:end] = part.tobytes()
            else:
                rows = np.ascontiguousarray(part)
                view[begin:end] = rows.reshape(-1).view(np.uint8).data
        shape = (sum(map(len, parts)), *first.shape[1:])
        return memory[:end].view(first.dtype).reshape(shape)

    def own(self, array: Array) -> Array:
        """Return the array, or a copy if the next batch would overwrite it.

        Some models return a view of their input.
        """
        if array.base is None:
            return array
        is_view = any(
            np.may_share_memory(array, each) for each in self._memory.values()
        )
        return array.copy() if is_view else array

    def _at_least(self, size: int, name: str) -> npt.NDArray[np.uint8]:
        """Return the memory of that name, of at least `size` bytes."""
        memory = self._memory.get(name)
        if memory is None or memory.nbytes < size:
            whole = np.empty(size + _ALIGNMENT, np.uint8)
            begin = -whole.ctypes.data % _ALIGNMENT
            memory = self._memory[name] = whole[begin : begin + size]
        return memory
