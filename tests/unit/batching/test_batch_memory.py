"""The memory of a batch's inputs, which one batch after the other overwrites."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.batching.batch_memory import BatchMemory

_DTYPES = st.sampled_from(["float32", "float16", "int64", "uint8", "bool", "complex64"])


def _rows(*values, width=3):
    return np.full((1, width), values[0], np.float32)


@given(
    dtype=_DTYPES,
    shape=arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ends=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1),
    order=st.sampled_from("CF"),
    data=st.data(),
)
def test_rows_come_under_each_other(dtype, shape, ends, order, data):
    """Parts of any dtype, shape and order come as np.concatenate has them."""
    whole = np.array(data.draw(arrays.arrays(dtype, (5, *shape))), order=order)
    parts = [whole[min(each) : max(each)] for each in ends]
    found = BatchMemory().put("x", parts)
    assert found.dtype == dtype
    assert found.shape == (sum(map(len, parts)), *shape)
    assert found.tobytes() == np.concatenate(parts).tobytes()


def test_a_row_that_lies_in_columns_is_stacked():
    """One row of an array in Fortran's order, whose values lie apart, is as any."""
    columns = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    found = BatchMemory().put("x", [columns[2:], columns[:1]])
    assert found.tolist() == [[4, 5], [0, 1]]


def test_strings_come_under_each_other():
    """Arrays of objects, which have no bytes to copy, come as one array as well."""
    parts = [np.array([b"a"], object), np.array([b"b", b"c"], object)]
    assert BatchMemory().put("x", parts).tolist() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_a_batch_lies_where_tensorflow_takes_it(rows):
    """A batch of any size begins at a multiple of 64 bytes."""
    assert BatchMemory().put("x", [_rows(1)] * rows).ctypes.data % 64 == 0


def test_memory_is_kept():
    """A batch no larger than one before lies where that one lay."""
    stack = BatchMemory()
    first = stack.put("x", [_rows(1), _rows(2)])
    second = stack.put("x", [_rows(3)])
    assert second.ctypes.data == first.ctypes.data
    assert first[0].tolist() == [3, 3, 3]


def test_a_larger_batch_gets_more_memory():
    """A batch that is larger than all before has room."""
    stack = BatchMemory()
    stack.put("x", [_rows(1)])
    assert stack.put("x", [_rows(2)] * 100).tolist() == [[2, 2, 2]] * 100


def test_each_input_has_memory_of_its_own():
    """One input's rows do not overwrite another's."""
    stack = BatchMemory()
    first = stack.put("x", [_rows(1)])
    stack.put("y", [_rows(2)])
    assert first.tolist() == [[1, 1, 1]]


def test_an_output_that_is_a_view_is_copied():
    """What a model gives back of its input stays, whatever the next batch brings."""
    stack = BatchMemory()
    given_back = stack.own(stack.put("x", [_rows(1), _rows(2)])[:, :1])
    stack.put("x", [_rows(3), _rows(4)])
    assert given_back.tolist() == [[1], [2]]


def test_an_output_of_its_own_is_not_copied():
    """An output elsewhere in memory comes as it is."""
    stack, output = BatchMemory(), np.ones(3)
    stack.put("x", [_rows(1)])
    assert stack.own(output) is output
