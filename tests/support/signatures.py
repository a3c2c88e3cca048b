"""Signatures for tests of the codecs."""

import numpy as np

from app.engines.base import Signature, TensorSpec


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
