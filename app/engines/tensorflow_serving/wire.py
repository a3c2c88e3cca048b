"""TensorFlow Serving's JSON, as its client writes and reads it.

Batches are sent in columns, {"inputs": {name: rows}}, without an object for each row.
A response is {"outputs": rows} for one output and {"outputs": {name: rows}} for
several.
"""

import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import orjson

from app.engines.base import Array, Signature, Tensors, TensorSpec
from app.engines.loading import served_signatures, signature_of_tensors
from app.errors import ModelLoadError, WrongOutputs

# The dtypes that the API supports, by TensorFlow's names.
_DTYPES: dict[str, np.dtype[np.generic]] = {
    "DT_BOOL": np.dtype(np.bool_),
    "DT_HALF": np.dtype(np.float16),
    "DT_FLOAT": np.dtype(np.float32),
    "DT_DOUBLE": np.dtype(np.float64),
    "DT_STRING": np.dtype(object),
    **{f"DT_INT{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"DT_UINT{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
}
_MAX_SHOWN_CHARS = 200
# Dtype kind of an output -> kinds of NumPy arrays of JSON values that it accepts.
_ACCEPTED_KINDS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}


def read_signatures(body: bytes, required: str) -> dict[str, Signature]:
    """Return the signatures in a /metadata response, except those that can't be served.

    Inputs and outputs have no order there; they are sorted by name here.

    Raises:
        ModelLoadError: no metadata, or `required`, or each signature, can't be served.
    """
    try:
        definitions = loads(body)["metadata"]["signature_def"]["signature_def"]
        found = {name: dict(value) for name, value in definitions.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelLoadError("the model server's metadata can't be read") from error
    return served_signatures(found, lambda name: _signature(found[name]), required)


def write_inputs(batch: Tensors, signature: Signature, signature_name: str) -> bytes:
    """Return a body for :predict that holds numbers and strings exactly."""
    names = [spec.name for spec in signature.inputs]
    arrays = {name: np.ascontiguousarray(batch[name]) for name in names}
    inputs: dict[str, Any] = arrays
    if signature.takes_whole_tensors:
        inputs = {name: array[0] for name, array in arrays.items()}
    body = {"signature_name": signature_name, "inputs": inputs}
    if all(map(_is_finite, arrays.values())):
        return orjson.dumps(body, _plain, orjson.OPT_SERIALIZE_NUMPY)
    # TensorFlow Serving reads NaN and infinities as the bare tokens of Python's json.
    return json.dumps(body, default=_plain).encode()


def read_outputs(body: bytes, signature: Signature) -> Tensors:
    """Return the outputs in a :predict response, in the signature's dtypes and shapes.

    Raises:
        WrongOutputs: they do not match the signature; the text names the output.
    """
    try:
        outputs = loads(body)["outputs"]
    except (KeyError, TypeError, ValueError) as error:
        raise WrongOutputs("the model server's answer holds no outputs") from error
    if len(signature.outputs) == 1:
        (spec,) = signature.outputs
        return {spec.name: _array(outputs, spec, signature)}
    if not isinstance(outputs, dict):
        raise WrongOutputs("the model server's answer names no outputs")
    return {
        spec.name: _array(outputs[spec.name], spec, signature)
        for spec in signature.outputs
        if spec.name in outputs
    }


def read_states(body: bytes) -> str:
    """Return the version states in a model status response: version 3 is LOADING."""
    try:
        states = [
            f"version {each['version']} is {each['state']}"
            for each in loads(body)["model_version_status"]
        ]
    except (KeyError, TypeError, ValueError):
        states = []
    return ", ".join(states)[:_MAX_SHOWN_CHARS] or "it says nothing of any version"


def loads(body: bytes) -> Any:
    """Read JSON that may contain NaN and Infinity.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            return json.loads(body)
        except RecursionError as error:
            raise ValueError("too many brackets") from error


def _signature(definition: Mapping[str, Any]) -> Signature:
    inputs, outputs = definition.get("inputs"), definition.get("outputs")
    if not inputs or not outputs:
        raise ModelLoadError("it has no inputs or no outputs")
    return signature_of_tensors(
        list(_specs("input", inputs)), list(_specs("output", outputs))
    )


def _specs(kind: str, tensors: Mapping[str, Any]) -> Iterable[TensorSpec]:
    for name, info in sorted(tensors.items()):
        label = f"{kind} {name}"
        try:
            dtype, shape = info["dtype"], info["tensor_shape"]
            sizes = [int(dim["size"]) for dim in shape.get("dim", ())]
            is_known = not shape.get("unknown_rank", False)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelLoadError(f"{label} can't be read") from error
        if dtype not in _DTYPES:
            raise ModelLoadError(f"{label}: {dtype} is not served")
        dims = tuple(None if size < 0 else size for size in sizes if is_known)
        yield TensorSpec(name, _DTYPES[dtype], dims, any_rank=not is_known)


def _plain(value: Any) -> Any:
    """Return what JSON has for the bytes of a string, an array or a NumPy number."""
    if isinstance(value, bytes):
        return {"b64": binascii.b2a_base64(value, newline=False).decode()}
    return value.tolist()


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _array(values: Any, spec: TensorSpec, signature: Signature) -> Array:
    try:
        array = _strings(values) if spec.dtype.kind == "O" else _numbers(values, spec)
    except (OverflowError, TypeError, ValueError) as error:
        raise WrongOutputs(
            f"the model server's {spec.name!r} is not what its signature says: {error}"
        ) from error
    if signature.takes_whole_tensors:
        array = array[np.newaxis]
    if array.ndim and not spec.accepts(array.shape[1:]):
        raise WrongOutputs(
            f"the model server's {spec.name!r} has rows of shape {array.shape[1:]}, "
            f"and its signature says {spec.shape_text()}"
        )
    return array


def _numbers(values: Any, spec: TensorSpec) -> Array:
    found: Array = np.array(values)
    if spec.dtype == np.uint64 and found.dtype.kind == "f":
        # NumPy turns a list of 1 and 2**63 into floats.
        leaves = np.array(values, object)
        if all(type(value) is int for value in leaves.flat):
            found = leaves.astype(np.uint64)
    if found.size and found.dtype.kind not in _ACCEPTED_KINDS[spec.dtype.kind]:
        raise TypeError(f"{found.dtype} where {spec.dtype} should be")
    with np.errstate(over="ignore"):
        array = found.astype(spec.dtype)
    if spec.dtype.kind in "iu" and (array != found).any():
        raise OverflowError(f"a value is out of range for {spec.dtype}")
    return array


def _strings(values: Any) -> Array:
    array = np.array(values, object)
    array.reshape(-1)[:] = [_bytes(value) for value in array.flat]
    return array


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return binascii.a2b_base64(value["b64"], strict_mode=True)
