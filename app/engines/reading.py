"""What engines share in reading a model: specs from its dtypes, and its errors."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.engines.base import Signature, TensorSpec
from app.errors import ModelLoadError

_MOST_REASON = 300


def row_spec(name: str, dtype: str, shape: Sequence[int | None]) -> TensorSpec:
    """The spec of one row for a tensor of shape (None, *shape).

    `dtype` is the name that TensorFlow and Keras have for it. bfloat16 is float32
    outside a model: NumPy and JSON can't carry it.

    Raises:
        ModelLoadError: a dtype that no client can send or read.
    """
    if dtype == "string":
        return TensorSpec(name, np.dtype(object), tuple(shape))
    try:
        outside = np.dtype("float32" if dtype == "bfloat16" else dtype)
    except TypeError:
        outside = np.dtype(np.void)
    if outside.isbuiltin != 1 or outside.kind not in "biuf":
        raise ModelLoadError(f"{name}: {dtype} is not served")
    return TensorSpec(name, outside, tuple(shape))


def refuse_text(signature: Signature) -> None:
    """Hold that a model takes and gives numbers only.

    Raises:
        ModelLoadError: an input or an output is text.
    """
    for spec in (*signature.inputs, *signature.outputs):
        if spec.dtype.kind == "O":
            raise ModelLoadError(
                f"{spec.name} is text, which only BASKET_ENGINE=tensorflow can run"
            )


def load_error(error: Exception, file: Path) -> ModelLoadError:
    """A reader's error in one line, without a path of this machine."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    for folder in (file.parent.resolve(), file.parent):
        reason = reason.replace(f"{folder}/", "").replace(str(folder), file.name)
    return ModelLoadError(f"{file.name}: {reason}")


def in_one_line(error: BaseException) -> str:
    """What a framework raised, on one line and not too long."""
    return " ".join(str(error).split())[:_MOST_REASON] or type(error).__name__
