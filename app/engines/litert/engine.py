"""Runs TFLite files on LiteRT, on the CPU: all signatures of dense tensors."""

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors, TensorSpec
from app.engines.fixed_batch import limit_batches, rows_to_try
from app.engines.loading import (
    content_error,
    load_error,
    served_signatures,
    signature_of_tensors,
    tensor_spec,
)
from app.engines.random_rows import has_free_sizes
from app.engines.whole_tensors import model_inputs, row_outputs
from app.errors import ModelLoadError, RefusedInput
from app.settings import Settings

# The interpreter appends each error to the text of those before it, and never drops it.
_MAX_ERRORS_CHARS = 1 << 14
_FAILED = re.compile(r"Node number \d+ \(([^)]*)\) failed to (invoke|prepare)\.")
# Values that can't be computed.
_BY_ZERO = re.compile(r"[Dd]ivision by (?:0|zero)|!= zero_point was not true")
_UNKNOWN_CONTENT = re.compile("not a valid Flatbuffer|must be specified")
# A string of the file's table of operations, which a NUL ends.
_FLEX_NAME = re.compile(rb"Flex[A-Z][A-Za-z0-9]+(?=\0)")
_UNKNOWN_OPERATION = re.compile(
    r"unresolved custom op: (\w+)|builtin opcode '(\w+)'|\((Flex\w+)\) failed"
)


class LiteRtEngine:
    """The signatures of a TFLite file by name; their inputs and outputs are sorted.

    A file without signatures has one, whose names are those of its tensors.
    """

    platform = "litert_tflite"

    def __init__(self, content: bytes) -> None:
        """Take the content of a file.

        Raises:
            ModelLoadError: serving_default, or each signature, can't be served.
            Exception: whatever LiteRT raises.
        """
        self.weight_bytes = len(content)
        self._content = content
        # An interpreter runs one batch at a time, and request threads may call `run`.
        self._lock = threading.Lock()
        self._interpreter: Any = None
        self._runners: dict[str, Any] = {}
        self._open()
        specs = served_signatures(self._runners, self._specs_of)
        self.declared = {
            name: signature_of_tensors(*each) for name, each in specs.items()
        }
        self.signatures: Mapping[str, Signature] = {
            name: rows_to_try(*each) for name, each in specs.items()
        }

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Compute one batch with one of the functions.

        Raises:
            RefusedInput: an index is out of bounds, or free sizes do not fit.
            ModelLoadError: LiteRT lacks an operation; of some files, only runs tell.
            RuntimeError: whatever else LiteRT raises; also for too large a batch, which
                it does not tell from other failures.
        """
        signature = self.signatures[signature_name]
        inputs = model_inputs(batch, signature)
        with self._lock:
            # Layers such as a fused LSTM would go on from the state of the batch
            # before. Variables that are not allocated yet begin with zeros anyway.
            with suppress(RuntimeError):
                self._interpreter.reset_all_variables()
            try:
                outputs = self._runners[signature_name](**inputs)
            except RuntimeError as error:
                if len(str(error)) > _MAX_ERRORS_CHARS:
                    self._open()
                missing = _missing_operations(error, self._content)
                failure = missing or _failure(error, signature)
                raise failure from error
        named = {spec.name: outputs[spec.name] for spec in signature.outputs}
        return row_outputs(named, signature)

    def close(self) -> None:
        """Drop the interpreter."""
        with self._lock:
            self._runners.clear()
            self._interpreter = None

    def _specs_of(self, name: str) -> tuple[list[TensorSpec], list[TensorSpec]]:
        runner = self._runners[name]
        inputs, outputs = runner.get_input_details(), runner.get_output_details()
        return list(_specs(inputs)), list(_specs(outputs))

    def _open(self) -> None:
        interpreter = Interpreter(
            model_content=self._content, num_threads=len(os.sched_getaffinity(0))
        )
        self._interpreter = interpreter
        interpreter.allocate_tensors()
        names = interpreter.get_signature_list()
        self._runners = {
            name: interpreter.get_signature_runner(name) for name in names
        } or {DEFAULT_SIGNATURE: _MainGraph(interpreter)}


class _MainGraph:
    """What a SignatureRunner offers, for a file without signatures."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self._inputs = _by_name(interpreter.get_input_details())
        self._outputs = _by_name(interpreter.get_output_details())

    def get_input_details(self) -> Mapping[str, Any]:
        return self._inputs

    def get_output_details(self) -> Mapping[str, Any]:
        return self._outputs

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        interpreter = self._interpreter
        for name, array in inputs.items():
            interpreter.resize_tensor_input(self._inputs[name]["index"], array.shape)
        interpreter.allocate_tensors()
        for name, array in inputs.items():
            interpreter.set_tensor(self._inputs[name]["index"], array)
        interpreter.invoke()
        return {
            name: interpreter.get_tensor(details["index"])
            for name, details in self._outputs.items()
        }


def open_engine(file: Path, settings: Settings) -> LiteRtEngine:
    """Open a TFLite file; settings do not change it.

    Raises:
        ModelLoadError: LiteRT can't read it, or it can't be served.
    """
    del settings
    # Not by its path: the file would be mapped, and an overwrite change the model.
    content = file.read_bytes()
    try:
        engine = LiteRtEngine(content)
        _check_operations(engine)
    except ModelLoadError:
        raise
    except Exception as error:  # LiteRT raises whatever its readers raise
        if _UNKNOWN_CONTENT.search(str(error)):
            raise content_error(file) from error
        missing = _missing_operations(error, content)
        raise missing or load_error(error, file) from error
    engine.signatures = limit_batches(engine, engine.declared)
    return engine


def _check_operations(engine: LiteRtEngine) -> None:
    """Raise a ModelLoadError for an operation that LiteRT lacks."""
    for name, signature in engine.signatures.items():
        rows = signature.fixed_batch_size or 1
        # Any other failure is the warm-up's to judge.
        with suppress(RuntimeError, RefusedInput, ValueError):
            engine.run({spec.name: spec.blank(rows) for spec in signature.inputs}, name)


def _by_name(details: list[Any]) -> dict[str, Any]:
    return {tensor["name"]: tensor for tensor in details}


def _specs(details: Mapping[str, Any]) -> Iterator[TensorSpec]:
    """Yield the specs of whole tensors by name, sorted."""
    for name, tensor in sorted(details.items()):
        is_text = tensor["dtype"] is np.bytes_
        dtype = "string" if is_text else np.dtype(tensor["dtype"]).name
        sizes = [None if size < 0 else int(size) for size in tensor["shape_signature"]]
        yield tensor_spec(name, dtype, sizes)


def _failure(error: RuntimeError, signature: Signature) -> Exception:
    """Return the error of a row in place of LiteRT's, or LiteRT's last one."""
    text = str(error)
    failed = _FAILED.findall(text)
    reasons = [each for each in _FAILED.split(text)[::3] if each.strip()]
    reason = reasons[-1] if reasons else ""
    if "out of bounds" in reason:
        return RefusedInput("the model refuses this input: an index is out of bounds")
    if _BY_ZERO.search(reason):
        return RefusedInput("the model refuses this input: integer division by zero")
    if failed and failed[-1][1] == "prepare" and has_free_sizes(signature):
        return RefusedInput("the model refuses this input: its sizes do not fit")
    operation = f"{failed[-1][0]}: " if failed else ""
    return RuntimeError(f"{operation}{reason}")


def _missing_operations(error: Exception, content: bytes) -> ModelLoadError | None:
    """Return an error that names the operations which LiteRT lacks, if that is it."""
    found = _UNKNOWN_OPERATION.search(str(error))
    if found is None:
        return None
    custom, newer, flex = found.groups()
    if newer:
        return ModelLoadError(
            f"it needs {newer} in a version that this LiteRT does not have: install a "
            "newer ai-edge-litert"
        )
    names, whose = [custom], "a library of its own"
    if flex:
        names = sorted({name.decode() for name in _FLEX_NAME.findall(content)})
        whose = "TensorFlow"
    return ModelLoadError(
        f"it needs {', '.join(names)} of {whose}, which LiteRT does not have: serve "
        "the SavedModel or .keras file that it was converted from"
    )
