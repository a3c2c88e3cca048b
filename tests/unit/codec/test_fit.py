"""Values that the model's own dtype, narrower than the request's, cannot hold."""

import ml_dtypes
import numpy as np
import pytest

from app.codec.fit import check_narrower
from app.engines.base import Signature, TensorSpec
from app.errors import BadInput

FLOAT32 = np.dtype(np.float32)
SIGNATURE = Signature(
    inputs=(
        TensorSpec("wide", FLOAT32, (None,)),
        TensorSpec("narrow", FLOAT32, (None,), "bfloat16"),
    ),
    outputs=(),
)
# The float32 from which on bfloat16 is infinite.
INFINITE_FROM = np.uint32(0x7F7F8000).view(np.float32)


def inputs(value):
    rows = np.array([[0.5, 0.5], [0.5, value]], np.float32)
    return {"wide": np.full((2, 1), 3.4e38, np.float32), "narrow": rows}


@pytest.mark.parametrize("sign", [1, -1])
def test_value_that_bfloat16_makes_infinite_is_refused(sign):
    """The text names the input, the value's place and the model's dtype."""
    value = sign * INFINITE_FROM
    assert np.isinf(value.astype(ml_dtypes.bfloat16))
    text = rf"^input 'narrow'\[1\]\[1\]: {value} is out of range for bfloat16$"
    with pytest.raises(BadInput, match=text.replace("+", r"\+")):
        check_narrower(inputs(value), SIGNATURE)


@pytest.mark.parametrize(
    "value", [np.nextafter(INFINITE_FROM, np.float32(0)), np.inf, -np.inf, np.nan]
)
def test_value_that_bfloat16_rounds_or_has_is_taken(value):
    """Finite values that round to finite ones, infinities and NaN are taken."""
    rounded = np.float32(value).astype(ml_dtypes.bfloat16)
    assert np.isfinite(value) == np.isfinite(rounded)
    check_narrower(inputs(value), SIGNATURE)
