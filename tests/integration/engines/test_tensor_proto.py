"""TensorFlow's own functions for TensorProto read and write the same tensors."""

import numpy as np
import pytest

from app.codec import tensor_proto
from app.codec.bounds import UNBOUNDED
from tests.support.signatures import takes
from tests.support.tensor_protos import (
    DTYPES,
    TensorProto,
    check_same,
    values_of,
    written,
)


@pytest.mark.keras
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_equal", [False, True], ids=["values", "one value"])
def test_tensorflow_and_basket_read_each_others_tensors(tf, dtype, is_equal):
    """Values are the same both ways, where one stands for all, too."""
    array = values_of(dtype).reshape(3, 2)
    made = tf.make_tensor_proto(array)
    if is_equal:
        array = np.full((3, 2), array[1, 0], dtype)
        made = tf.make_tensor_proto(array[0, 0], shape=(3, 2))
    tensor = TensorProto.FromString(made.SerializeToString())
    read = tensor_proto.read_inputs({"x": tensor}, takes(dtype, 2), UNBOUNDED, 1 << 20)
    check_same(read["x"], array)
    back = tf.make_ndarray(type(made).FromString(written(array)))
    np.testing.assert_array_equal(back, array, strict=True)
