"""BatchMemory: concatenated inputs in memory that the next batch overwrites."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.batching.batch_memory import BatchMemory

_DTYPES = st.sampled_from(["float32", "float16", "int64", "uint8", "bool", "complex64"])


def _rows(value):
    return np.full((1, 3), value, np.float32)


@given(
    dtype=_DTYPES,
    shape=arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ends=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1),
    order=st.sampled_from("CF"),
    data=st.data(),
)
def test_parts_are_concatenated(dtype, shape, ends, order, data):
    """Parts of any dtype, shape and order give the result of np.concatenate."""
    whole = np.array(data.draw(arrays.arrays(dtype, (5, *shape))), order=order)
    parts = [whole[min(each) : max(each)] for each in ends]
    found = BatchMemory().put("x", parts)
    assert found.dtype == dtype
    assert found.shape == (sum(map(len, parts)), *shape)
    assert found.tobytes() == np.concatenate(parts).tobytes()


@pytest.mark.parametrize("width", [2, 10_000], ids=["small", "large"])
def test_fortran_ordered_parts_are_concatenated(width):
    """Parts whose values lie apart in memory are copied row by row."""
    values = np.arange(3 * width, dtype=np.float32).reshape(3, width)
    columns = np.asfortranarray(values)
    found = BatchMemory().put("x", [columns[2:], columns[:1]])
    assert np.array_equal(found, values[[2, 0]])


def test_strings_are_concatenated():
    """Arrays of objects, which have no bytes to copy, are concatenated as well."""
    parts = [np.array([b"a"], object), np.array([b"b", b"c"], object)]
    assert BatchMemory().put("x", parts).tolist() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_batch_is_aligned_for_tensorflow(rows):
    """A batch of any size begins at a multiple of 64 bytes."""
    assert BatchMemory().put("x", [_rows(1)] * rows).ctypes.data % 64 == 0


def test_next_batch_overwrites_the_memory_unless_it_is_larger():
    """A batch no larger than one before has the same address; a larger one fits."""
    memory = BatchMemory()
    first = memory.put("x", [_rows(1), _rows(2)])
    second = memory.put("x", [_rows(3)])
    assert second.ctypes.data == first.ctypes.data
    assert first[0].tolist() == [3, 3, 3]
    assert memory.put("x", [_rows(2)] * 100).tolist() == [[2, 2, 2]] * 100


def test_each_input_has_its_own_memory():
    """One input's rows do not overwrite another's."""
    memory = BatchMemory()
    first = memory.put("x", [_rows(1)])
    memory.put("y", [_rows(2)])
    assert first.tolist() == [[1, 1, 1]]


def test_output_that_is_a_view_of_the_memory_is_copied():
    """An output that is a view of its input outlives the next batch."""
    memory = BatchMemory()
    output = memory.own(memory.put("x", [_rows(1), _rows(2)])[:, :1])
    memory.put("x", [_rows(3), _rows(4)])
    assert output.tolist() == [[1], [2]]


@pytest.mark.parametrize("output", [np.ones(3), np.ones(6)[:3]], ids=["own", "view"])
def test_output_elsewhere_in_memory_is_not_copied(output):
    """An output that is no view of the memory is returned as it is."""
    memory = BatchMemory()
    memory.put("x", [_rows(1)])
    assert memory.own(output) is output
