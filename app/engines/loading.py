"""Shared steps of loading a model: its signatures, dtypes and errors."""

import json
import logging
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from zipfile import ZipFile, is_zipfile

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import BasketError, ModelLoadError, NotYetLoadable
from app.settings.model_files import PICKLE, PYTORCH

_log = logging.getLogger(__name__)
_MAX_REASON_CHARS = 300
# Keras's text for an error in a layer: its class, then in bold the error's first line.
_LAYER_ERROR = re.compile(
    r"Exception encountered when calling (\w+)\.call\(\)\.\s+\x1b\[1m([^\x1b\n]*)"
)
# A constant in TOML for each kind of dtype.
_EXAMPLES = {"b": "false", "f": "1.0", "O": '"..."'}
# Of an absolute path, or a file's URL, the folders; other URLs have // after a colon.
_FOLDERS = re.compile(
    r"(?:\bfile:/+|(?<=:)/(?!/)|(?<![\w.:/])/+)(?:[^\s/'\"]+(?: [^\s/'\"]+)*/)+"
)
# What tells of this machine in a framework's errors: TensorFlow's host, the file of a
# Python module, and the address of an object.
_MACHINE = {
    re.compile(r" in binary running on \S*[^\s.]"): "",
    re.compile(r"<module '(?:\w+\.)*__main__'(?: \(<[^>]*>\)|[^>]*)>"): (
        "'__main__', the script that saved it"
    ),
    re.compile(r"<module '([\w.]+)'(?: \(<[^>]*>\)|[^>]*)>"): r"module '\1'",
    re.compile(r" at 0x[0-9a-fA-F]+"): "",
}
# Of a file of another kind, the first bytes, and what it is.
_OTHER_KINDS = {
    re.compile(rb"version https://git-lfs"): (
        "is a Git LFS pointer: run git lfs pull, and copy the file again"
    ),
    re.compile(rb"\x89HDF\r\n\x1a\n"): "is an HDF5 file: name a Keras model model.h5",
    re.compile(rb".{4}TFL3", re.DOTALL): "is a TFLite file: name it model.tflite",
    # The version of the format, then the program that wrote it, or the graph.
    re.compile(rb"\x08[\x01-\x20][\x12:]"): "is an ONNX file: name it model.onnx",
    re.compile(rb"\x80[\x02-\x05]"): PICKLE,
}
_T = TypeVar("_T")
_SERVED_AS = {"string": "object", "bfloat16": "float32"}


def tensor_spec(
    name: str, dtype: str, shape: Sequence[int | None] | None
) -> TensorSpec:
    """Return the spec of a tensor of this shape; None is an unknown rank.

    `dtype` is TensorFlow's and Keras's name for it. bfloat16 becomes float32: NumPy and
    JSON have no such type.

    Raises:
        ModelLoadError: a dtype that no client can send or read.
    """
    narrower = dtype if dtype == "bfloat16" else ""
    try:
        served = np.dtype(_SERVED_AS.get(dtype, dtype))
    except TypeError:
        served = np.dtype(np.void)
    if served.isbuiltin != 1 or served.kind not in "biufO":
        raise ModelLoadError(f"{name}: {dtype} is not served")
    return TensorSpec(name, served, tuple(shape or ()), narrower, shape is None)


def served_signatures(
    names: Iterable[str],
    read: Callable[[str], _T],
    required: str = DEFAULT_SIGNATURE,
) -> dict[str, _T]:
    """Return what `read` returns for each name; skip names for which it raises.

    `required` is not skipped: clients that name no signature would get another one.

    Raises:
        ModelLoadError: `read` raised one for `required`, or for every name.
    """
    found, reasons = {}, []
    for name in names:
        try:
            found[name] = read(name)
        except ModelLoadError as error:
            reason = f"signature {name}: {error}"
            if name == required:
                raise ModelLoadError(reason) from error
            reasons.append(reason)
    if not found:
        raise ModelLoadError("; ".join(reasons) or "the model has no signatures")
    for reason in reasons:
        _log.warning("%s; it is left out", reason)
    return found


def signature_of_tensors(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Signature:
    """Return the signature of tensors whose specs have the shapes of whole tensors.

    Their first dimensions decide whether they are the rows of a batch.

    Raises:
        ModelLoadError: there are no inputs, or one that has no rows.
    """
    if not inputs:
        raise ModelLoadError(
            "it has no inputs, so there is nothing to ask it: save the model with at "
            "least one"
        )
    for spec in inputs:
        if spec.shape[:1] == (0,):
            raise ModelLoadError(
                f"input {spec.name} has the first dimension 0, which no row fits: save "
                "the model with a free one, such as None"
            )
    labels = [f"input {spec.name}" for spec in inputs]
    labels += [f"output {spec.name}" for spec in outputs]
    reason = _why_whole(dict(zip(labels, (*inputs, *outputs), strict=True)))
    if reason:
        return Signature(
            tuple(inputs),
            tuple(outputs),
            takes_whole_tensors=True,
            limit_reason=reason,
        )
    size = inputs[0].shape[0]
    fixed = f"{labels[0]} has the fixed first dimension {size}"
    return Signature(
        tuple(map(_row_of, inputs)),
        tuple(map(_row_of, outputs)),
        size,
        limit_reason="" if size is None else fixed,
    )


def _why_whole(tensors: Mapping[str, TensorSpec]) -> str:
    """Return why tensors, inputs first, are not rows of a batch; "" if they are."""
    first = next(iter(tensors))
    for label, spec in tensors.items():
        if spec.any_rank:
            return f"{label} has no known number of dimensions"
        if not spec.shape:
            return f"{label} is a single value{_constant_hint(label, tensors)}"
        size, expected = spec.shape[0], tensors[first].shape[0]
        if size != expected and (size is not None or label.startswith("input")):
            return (
                f"the first dimension of {label} is {_size_text(size)}, and that of "
                f"{first} is {_size_text(expected)}"
            )
    return ""


def _constant_hint(label: str, tensors: Mapping[str, TensorSpec]) -> str:
    """Return what makes a single value beside other inputs a constant, or ""."""
    others = [
        each
        for each, spec in tensors.items()
        if each.startswith("input") and (spec.shape or spec.any_rank)
    ]
    if not label.startswith("input") or not others:
        return ""
    spec = tensors[label]
    is_bare = re.fullmatch(r"[A-Za-z0-9_-]+", spec.name)
    key = spec.name if is_bare else json.dumps(spec.name)
    value = _EXAMPLES.get(spec.dtype.kind, "0")
    return (
        "; if all requests have the same one, basket.toml can fix it: "
        f"[constants] {key} = {value}"
    )


def _size_text(size: int | None) -> str:
    return "free" if size is None else str(size)


def _row_of(spec: TensorSpec) -> TensorSpec:
    return replace(spec, shape=spec.shape[1:])


def refuse_strings(signature: Signature) -> None:
    """Raise an error for a model with string inputs or outputs.

    Raises:
        ModelLoadError: an input or an output is a string.
    """
    for spec in (*signature.inputs, *signature.outputs):
        if spec.dtype.kind == "O":
            raise ModelLoadError(
                f"{spec.name} is text, which only TensorFlow can run: write "
                'engine = "tensorflow" into the model\'s basket.toml'
            )


@contextmanager
def report_unreadable(what: str) -> Iterator[None]:
    """Turn an OSError of the body into a load error with the file and the server's uid.

    Raises:
        NotYetLoadable: in place of an OSError; a change of permissions changes no
            file, so only another try can notice it.
    """
    try:
        yield
    except OSError as error:
        raise NotYetLoadable(
            f"{what} can't be read: {error.strerror} (the server runs as uid "
            f"{os.geteuid()})"
        ) from error


def load_error(error: Exception, file: Path) -> ModelLoadError:
    """Return a reader's error as one line, without paths of this machine."""
    reason = error_first_line(error)
    for folder in (file.parent.resolve(), file.parent):
        reason = reason.replace(f"{folder}/", "").replace(str(folder), file.name)
    return ModelLoadError(f"{file.name}: {reason}")


def content_error(file: Path) -> ModelLoadError:
    """Return the error for a file whose content its reader does not know."""
    with report_unreadable(file.name), file.open("rb") as content:
        size_bytes = os.fstat(content.fileno()).st_size
        start = content.read(32)
        names = ZipFile(content).namelist() if is_zipfile(content) else None
    kinds = [
        what
        for pattern, what in _OTHER_KINDS.items()
        if pattern.match(start) and not what.endswith(f"model{file.suffix}")
    ]
    if names and any(name.endswith("data.pkl") for name in names):
        kinds.append(PYTORCH)
    elif names and "config.json" in names:
        kinds.append("is a Keras file: name it model.keras")
    elif names is not None:
        kinds.append("is a zip file: unpack it")
    if kinds:
        return ModelLoadError(f"{file.name} {kinds[0]}")
    return ModelLoadError(
        f"{file.name} is no whole {file.suffix} file ({size_bytes} bytes): half "
        "copied, or damaged: copy it again, or export the model anew"
    )


@contextmanager
def as_load_error(
    what: str, described: Callable[[BaseException], str] | None = None
) -> Iterator[None]:
    """Turn any error of the body, which runs a model, into a load error with `what`.

    `described` returns the cause of an error of Basket's own on one line.

    Raises:
        ModelLoadError: in place of it; one that the body raises stays as it is.
    """
    try:
        yield
    except (KeyboardInterrupt, ModelLoadError):
        raise
    except BasketError as error:
        # Of a failure, the operator reads the reason, too.
        cause = error.__cause__
        reason = f": {(described or error_summary)(cause)}" if cause else ""
        raise ModelLoadError(f"{what}: {error}{reason}") from error
    except BaseException as error:  # a model may raise anything
        reason = f"{type(error).__name__}: {error_summary(error)}"
        raise ModelLoadError(f"{what}: {reason}") from error


def error_first_line(error: BaseException) -> str:
    """Return the first line of a framework's error; of nested ones, the cause's."""
    text = str(error).rpartition("Exception encountered: ")[2].strip()
    line = (text or type(error).__name__).splitlines()[0]
    return without_folders(line)[:_MAX_REASON_CHARS]


def error_summary(error: BaseException) -> str:
    """Return a framework's error on one line of at most 300 characters.

    For an error in a Keras layer, return the layer's class and the error's first line.
    """
    layer_errors = _LAYER_ERROR.findall(str(error))
    text = ": ".join(layer_errors[-1]) if layer_errors else str(error)
    line = without_folders(" ".join(text.split()))
    return line[:_MAX_REASON_CHARS] or type(error).__name__


def without_folders(text: str) -> str:
    """Return a text for clients: of a path of this machine only the last part."""
    return _FOLDERS.sub("", text)


def without_machine(text: str) -> str:
    """Return a text for clients, without the names and addresses of this machine."""
    for pattern, rest in _MACHINE.items():
        text = pattern.sub(rest, text)
    host = rf"(?<![\w.-]){re.escape(socket.gethostname())}(?![\w-])"
    return re.sub(host, "this machine", text)
