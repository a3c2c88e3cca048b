"""What engines share in reading a model: its signatures, dtypes and errors."""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np

from app.engines.base import Signature, TensorSpec
from app.errors import ModelLoadError, NotYetLoadable

_log = logging.getLogger(__name__)
_MOST_REASON = 300
# How Keras tells of a layer's error: its class, and in bold the error's first line.
_OF_LAYER = re.compile(
    r"Exception encountered when calling (\w+)\.call\(\)\.\s+\x1b\[1m([^\x1b\n]*)"
)
_T = TypeVar("_T")


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


def batched(names: Iterable[str], read: Callable[[str], _T]) -> dict[str, _T]:
    """What `read` makes of each signature; those that can't be batched are left out.

    Raises:
        ModelLoadError: none is left; with what `read` says of each.
    """
    found, reasons = {}, []
    for name in names:
        try:
            found[name] = read(name)
        except ModelLoadError as error:
            reasons.append(f"signature {name}: {error}")
    if not found:
        raise ModelLoadError("; ".join(reasons) or "the model has no signatures")
    for reason in reasons:
        _log.warning("%s; it is left out", reason)
    return found


def row_shape(place: str, shape: Sequence[int | None] | None) -> tuple[int | None, ...]:
    """The shape of one row of a batch; `shape` None: nothing is known of it.

    Raises:
        ModelLoadError: the first dimension is no batch of any size.
    """
    if shape is None:
        raise ModelLoadError(f"{place} has no known number of dimensions")
    if not shape:
        raise ModelLoadError(f"{place} is a single value, not a batch")
    if shape[0] is not None:
        raise ModelLoadError(
            f"{place} has the fixed first dimension {shape[0]}, a batch needs a free "
            "one"
        )
    return tuple(shape[1:])


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


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Say of what the system does not let be read in the body, and to whom.

    Raises:
        NotYetLoadable: in the place of an OSError; a right that is given changes no
            file, so that nothing else would tell when it is worth another try.
    """
    try:
        yield
    except OSError as error:
        raise NotYetLoadable(
            f"{what} can't be read: {error.strerror} (the server runs as uid "
            f"{os.geteuid()})"
        ) from error


def load_error(error: Exception, file: Path) -> ModelLoadError:
    """A reader's error in one line, without a path of this machine."""
    reason = first_line(error)
    for folder in (file.parent.resolve(), file.parent):
        reason = reason.replace(f"{folder}/", "").replace(str(folder), file.name)
    return ModelLoadError(f"{file.name}: {reason}")


def first_line(error: BaseException) -> str:
    """The first line of what a framework raised; Keras quotes what it began with."""
    text = str(error).rpartition("Exception encountered: ")[2].strip()
    return (text or type(error).__name__).splitlines()[0][:_MOST_REASON]


def in_one_line(error: BaseException) -> str:
    """What a framework raised, on one line and not too long.

    Of a layer's error it is the layer's class and the first line.
    """
    of_layer = _OF_LAYER.findall(str(error))
    text = ": ".join(of_layer[-1]) if of_layer else str(error)
    return " ".join(text.split())[:_MOST_REASON] or type(error).__name__
