"""Signatures for tests of the codecs."""

import numpy as np

from app.engines.base import Signature, Tensors, TensorSpec


def takes(dtype: str, *shape: int | None) -> Signature:
    """Return the signature of a model with one input, x."""
    return takes_several(x=(dtype, *shape))


def takes_several(**inputs: tuple) -> Signature:
    """Return a signature with named inputs: each a dtype and the sizes of one row."""
    return Signature(
        inputs=tuple(
            TensorSpec(name, np.dtype(given[0]), given[1:])
            for name, given in inputs.items()
        ),
        outputs=(TensorSpec("y", np.dtype(np.float32), ()),),
    )


def check_inputs(arrays: Tensors, signature: Signature) -> int:
    """Check that arrays are what a signature takes, and return the number of rows."""
    assert list(arrays) == [spec.name for spec in signature.inputs]
    for spec in signature.inputs:
        assert arrays[spec.name].dtype == spec.dtype
        assert spec.accepts(arrays[spec.name].shape[1:])
        if spec.dtype.kind == "O":
            assert {type(value) for value in arrays[spec.name].flat} <= {bytes}
    (rows,) = {len(array) for array in arrays.values()}
    assert rows > 0
    return rows
