"""Runs ONNX files on ONNX Runtime: on NVIDIA GPUs where its package can, else the CPU.

Weights may be in external files beside it.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors, TensorSpec
from app.engines.fixed_batch import limit_batches, rows_to_try
from app.engines.loading import (
    content_error,
    load_error,
    signature_of_tensors,
    tensor_spec,
    without_folders,
)
from app.engines.refusal import does_not_fit, refusal
from app.engines.whole_tensors import model_inputs, row_outputs
from app.errors import ModelLoadError, RefusedInput
from app.settings import Settings

_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
# ONNX's names for element types that NumPy names otherwise.
_DTYPES = {"float": "float32", "double": "float64"}
_TENSOR = re.compile(r"tensor\((\w+)\)")
_FATAL = 4
# A tensor's entry {"location": name} in Protocol Buffers, up to the name's length.
_LOCATION = re.compile(rb"\n\x08location\x12[\x01-\x7f]", re.DOTALL)
_NO_MEMORY = re.compile(
    r"Failed to allocate memory|bad_alloc|bad allocation|out of memory|ALLOC_FAILED"
)
# Sizes of inputs that do not fit each other, and values that can't be computed, which
# only some operations call invalid.
_OF_THE_ROW = re.compile(r"broadcast|reshape|mismatch|must match|Integer \w+ by zero")
# Texts before a reason: the code, the node, and where ONNX Runtime's source has it.
_PREFIX = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : |^Load model from .*? failed:"
    r"|^.*Status Message: |/\S+\.(?:h|cc):\d+ .*?\) (?:.*? was false\. )?"
    r"|^(?:Exception during loading: )?\S+\.(?:h|cc):\d+ \S+ ",
    re.DOTALL,
)
_NEWER = re.compile(r"(Opset \d+) is under development|(IR version): \d+")
_UNKNOWN_OPERATION = re.compile(
    r"(\S+?)(?:\(-?\d+\))? is not a registered function|implementation for (\w+)\("
    r"|No Op registered for (\S+)"
)
_UNKNOWN_CONTENT = re.compile("Protobuf parsing failed|No graph was found")
_UNKNOWN_TYPE = re.compile(r"MLDataType for: tensor\((\w+)\)")
_MISSING_WEIGHTS = re.compile(r'External data path does not exist: "?([^"]*)')
_SHORT_WEIGHTS = re.compile(
    r"External initializer: (.*?) offset: .*file_length: (\d+) are out of bounds"
)


class OnnxEngine:
    """The graph of an ONNX file, in its own names and order."""

    platform = "onnxruntime_onnx"

    def __init__(self, session: Any, weight_bytes: int) -> None:
        """Take an InferenceSession, and the size of its files.

        Raises:
            ModelLoadError: an input or an output is not a tensor that can be served.
        """
        self.weight_bytes = weight_bytes
        self._session = session
        inputs = list(_specs("input", session.get_inputs()))
        outputs = list(_specs("output", session.get_outputs()))
        self.declared = {DEFAULT_SIGNATURE: signature_of_tensors(inputs, outputs)}
        self.signatures: Mapping[str, Signature] = {
            DEFAULT_SIGNATURE: rows_to_try(inputs, outputs)
        }
        self._options = onnxruntime.RunOptions()
        # Errors are raised, too.
        self._options.log_severity_level = _FATAL

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch.

        Raises:
            OutOfDeviceMemory: an allocation failed.
            RefusedInput: INVALID_ARGUMENT, sizes that do not fit, or text that is not
                UTF-8.
            Exception: whatever else ONNX Runtime raises.
        """
        signature = self.signatures[signature_name]
        inputs = model_inputs(batch, signature)
        given = {
            spec.name: _as_text(spec, inputs[spec.name]) for spec in signature.inputs
        }
        names = [spec.name for spec in signature.outputs]
        try:
            arrays = self._session.run(names, given, self._options)
        except Exception as error:
            rows = len(batch[signature.inputs[0].name])
            raise _failure(error, rows) from error
        outputs = zip(signature.outputs, arrays, strict=True)
        return row_outputs(
            {spec.name: _as_bytes(array) for spec, array in outputs}, signature
        )

    def close(self) -> None:
        """Drop the session."""
        self._session = None


def open_engine(file: Path, settings: Settings) -> OnnxEngine:
    """Open an ONNX file; settings do not change it.

    Raises:
        ModelLoadError: ONNX Runtime can't read it, or it can't be served.
    """
    del settings
    try:
        engine = OnnxEngine(*_session(file))
    except ModelLoadError:
        raise
    except Exception as error:  # ONNX Runtime raises whatever its readers raise
        if _UNKNOWN_CONTENT.search(str(error)):
            raise content_error(file) from error
        raise _refusal(error, file) from error
    engine.signatures = limit_batches(engine, engine.declared)
    return engine


def _session(file: Path) -> tuple[Any, int]:
    """Return the InferenceSession of a file, and the bytes of it and its weights."""
    available = onnxruntime.get_available_providers()
    providers = [each for each in _PROVIDERS if each in available]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    # Its own choice binds threads to cores, which a container may not have.
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    # Threads that wait for the next operation would take the cores of other processes.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    weights = {
        name: (file.parent / name).read_bytes() for name in _external_files(file)
    }
    sizes = list(map(len, weights.values()))
    # Not by their paths: they would be mapped, and an overwrite change the model.
    options.add_external_initializers_from_files_in_memory(
        list(weights), list(weights.values()), sizes
    )
    session = onnxruntime.InferenceSession(str(file), options, providers=providers)
    return session, file.stat().st_size + sum(sizes)


def _external_files(file: Path) -> set[str]:
    """Return the names of the files that hold weights of a model, and are there.

    ONNX Runtime refuses those in other folders.
    """
    content = file.read_bytes()
    found = set()
    for match in _LOCATION.finditer(content):
        length = content[match.end() - 1]
        name = content[match.end() : match.end() + length].decode(errors="replace")
        path = file.parent / name
        if (
            ".." not in path.parts
            and path.is_relative_to(file.parent)
            and path.is_file()
        ):
            found.add(name)
    return found


def _specs(kind: str, nodes: Sequence[Any]) -> Iterator[TensorSpec]:
    """Yield the specs of whole tensors."""
    for node in nodes:
        found = _TENSOR.fullmatch(node.type)
        if found is None or found[1] == "bfloat16":
            what = node.type.replace("tensor(bfloat16)", "bfloat16")
            how = "with tensors of float32"
            if node.type.startswith("seq(map("):
                how = "with the option zipmap=False of skl2onnx or onnxmltools"
            raise ModelLoadError(
                f"{kind} {node.name} is {what}, which is not served: export it {how}"
            )
        sizes = [size if isinstance(size, int) else None for size in node.shape]
        # An unknown rank looks as that of a single value.
        yield tensor_spec(node.name, _DTYPES.get(found[1], found[1]), sizes or None)


def _as_text(spec: TensorSpec, array: Array) -> Array:
    """Return an input for ONNX Runtime, which takes text for strings, not bytes.

    Raises:
        RefusedInput: bytes that are not UTF-8.
    """
    if spec.dtype.kind != "O":
        return array
    try:
        return _each(bytes.decode, array)
    except UnicodeDecodeError as error:
        raise RefusedInput(f"{spec.name} holds text that is not UTF-8") from error


def _as_bytes(array: Array) -> Array:
    return _each(str.encode, array) if array.dtype.kind == "O" else array


def _each(function: Callable[[Any], Any], array: Array) -> Array:
    found = np.empty(array.shape, object)
    found.ravel()[:] = [function(value) for value in array.ravel().tolist()]
    return found


def _reason(error: Exception) -> str:
    text = str(error)
    while (rest := _PREFIX.sub("", text, count=1)) != text:
        text = rest
    return text.strip()


def _failure(error: Exception, rows: int) -> Exception:
    """Return the error of a row or a batch in place of ONNX Runtime's."""
    text = str(error)
    if _NO_MEMORY.search(text):
        return does_not_fit(rows)
    reason = _reason(error)
    if type(error).__name__ == "InvalidArgument" or _OF_THE_ROW.search(reason):
        return refusal("the model refuses this input", reason)
    return error


def _refusal(error: Exception, file: Path) -> ModelLoadError:
    """Return ONNX Runtime's error as one that says what to do."""
    reason = _reason(error)
    if missing := _MISSING_WEIGHTS.search(reason):
        name = without_folders(missing[1])
        return ModelLoadError(
            f"{file.name} lacks {name}, which has its weights: copy this file, with "
            "its name, into the same folder"
        )
    if short := _SHORT_WEIGHTS.search(reason):
        names = " or ".join(sorted(_external_files(file)))
        return ModelLoadError(
            f"{names}, with {short[2]} bytes, is too short for the tensor {short[1]} "
            f"of {file.name}: half copied, or of another model: copy both again"
        )
    if kind := _UNKNOWN_TYPE.search(reason):
        return ModelLoadError(
            f"it has a tensor of {kind[1]}, which ONNX Runtime does not have: export "
            "it with tensors of float32; of complex numbers, with the real and the "
            "imaginary parts in two"
        )
    if unknown := _UNKNOWN_OPERATION.search(reason):
        name = unknown[unknown.lastindex or 0]
        return ModelLoadError(
            f"it needs {name}, which ONNX Runtime does not have, "
            "or not for its types: export it with other operations or with float32, or "
            "load it with a library of its own in a service.py (docs/user_code.md)"
        )
    if newer := _NEWER.search(reason):
        return ModelLoadError(
            f"its {newer[1] or newer[2]} is newer than this ONNX Runtime: export it "
            "for an older one, or install a newer onnxruntime"
        )
    return load_error(RuntimeError(reason), file)
