"""The Open Inference Protocol's infer messages of gRPC, both ways.

They have the fields of the JSON, so that both are checked alike. A response has all
values in raw_output_contents, as Triton's has.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.codec.bounds import UNBOUNDED, Bounds
from app.codec.fit import check_range
from app.codec.v2 import binary_tensors
from app.codec.v2.datatypes import datatype_of
from app.codec.v2.infer_options import Options, read_options, read_outputs
from app.codec.v2.tensors import TensorsRequest, read_inputs
from app.engines.base import Array, Signature, Tensors, TensorSpec, main_signature
from app.errors import BadInput, Unsupported

# The field of InferTensorContents that holds the values of a datatype.
_FIELDS = {
    **{"BOOL": "bool_contents", "BYTES": "bytes_contents"},
    **{"FP32": "fp32_contents", "FP64": "fp64_contents"},
    **{"INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents"},
    **{"UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents"},
    **{"INT64": "int64_contents", "UINT64": "uint64_contents"},
}
# Inputs in shared memory.
_SHARED = "shared_memory_region"


def decode(
    message: Any, signatures: Mapping[str, Signature], bounds: Bounds = UNBOUNDED
) -> TensorsRequest:
    """Return the inputs of a ModelInferRequest as arrays (rows, *shape).

    Raises:
        BadInput: the text names the input and what is wrong with it.
        TooLarge: more rows than the bounds allow.
        Unsupported: shared memory, or another feature that is not built here.
    """
    name, signature = main_signature(signatures)
    if message.parameters or message.outputs:
        options = read_options(_options(message), signature)
    else:
        options = Options(read_outputs(None, signature, binary=True), message.id)
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise BadInput(
            f"raw_input_contents: expected one for each of {len(message.inputs)} "
            f"inputs, given {len(raw)}"
        )
    given: list[dict[str, Any]] = []
    for tensor in message.inputs:
        given.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "raw": raw[len(given)] if raw else None,
                "message": tensor,
            }
        )
    inputs = read_inputs(given, signature, bounds, _read)
    return TensorsRequest(name, inputs, options, signature.takes_whole_tensors)


def encode(
    message: Any,
    model_name: str,
    version: int,
    request: TensorsRequest,
    outputs: Tensors,
) -> None:
    """Fill a ModelInferResponse with the requested outputs."""
    message.model_name = model_name
    message.model_version = str(version)
    message.id = request.options.id or ""
    for wanted in request.options.outputs:
        array = outputs[wanted.name]
        if request.is_whole:
            array = array.reshape(array.shape[1:])
        message.outputs.add(
            name=wanted.name, datatype=datatype_of(array.dtype), shape=array.shape
        )
        message.raw_output_contents.append(bytes(binary_tensors.write(array)))


def _options(message: Any) -> dict[str, Any]:
    """Return all of a request but its inputs, as its JSON would have it."""
    # Outputs are binary, as no text is written.
    parameters = _parameters(message.parameters) | {"binary_data_output": True}
    outputs = [
        {
            "name": output.name,
            "parameters": _parameters(output.parameters) | {"binary_data": True},
        }
        for output in message.outputs
    ]
    return {"id": message.id, "parameters": parameters, "outputs": outputs}


def _parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    if not parameters:
        return {}
    return {name: value_of(value) for name, value in parameters.items()}


def value_of(parameter: Any) -> Any:
    """Return the value of an InferParameter or ModelRepositoryParameter, or None."""
    choice = parameter.WhichOneof("parameter_choice")
    return None if choice is None else getattr(parameter, choice)


def _read(tensor: Mapping[str, Any], spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    """Return an input's values as an array of `shape`."""
    message, raw = tensor["message"], tensor["raw"]
    place = f"input {spec.name!r}"
    if message.parameters and _SHARED in message.parameters:
        raise Unsupported(f"{place}: shared memory is not built here")
    if raw is None:
        return _read_contents(message.contents, spec, shape, place)
    if message.HasField("contents"):
        raise BadInput(f"{place}: expected contents or raw_input_contents, given both")
    return binary_tensors.read(memoryview(raw), spec, shape)


def _read_contents(
    contents: Any, spec: TensorSpec, shape: tuple[int, ...], place: str
) -> Array:
    datatype = datatype_of(spec.dtype)
    field = _FIELDS.get(datatype)
    if field is None:
        raise BadInput(f"{place}: {datatype} has no contents: send raw_input_contents")
    others = [each.name for each, _ in contents.ListFields() if each.name != field]
    if others:
        raise BadInput(
            f"{place}: expected {datatype} in contents.{field}, given {others[0]}"
        )
    values = getattr(contents, field)
    if len(values) != math.prod(shape):
        raise BadInput(
            f"{place}: shape {list(shape)} is {math.prod(shape)} values in "
            f"contents.{field}, given {len(values)}"
        )
    if datatype == "BYTES":
        return np.array([*values], object).reshape(shape)
    given = np.array(values)
    array = given.astype(spec.dtype)
    if spec.dtype.kind in "iu":
        check_range(array != given, given, datatype, f"{place}: contents.{field}")
    return array.reshape(shape)
