"""The Open Inference Protocol's infer bodies, with Triton's binary tensor extension.

A request is JSON with each input's values, or with the number of their bytes behind the
JSON; or it is the bytes of one input and nothing else. The first size of every shape is
the number of rows.
"""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from app.codec import json_text, tensor_shape
from app.codec.bounds import UNBOUNDED, Bounds
from app.codec.fit import check_equal_rows
from app.codec.v2 import binary_tensors, json_tensors
from app.codec.v2.datatypes import datatype_of
from app.codec.v2.infer_options import Options, parameters_of, read_options, shown
from app.engines.base import Array, Signature, Tensors, TensorSpec, main_signature
from app.errors import BadInput, Unsupported, too_many_rows

# Returns the values of a tensor for an input, in this shape.
ReadValues = Callable[[Mapping[str, Any], TensorSpec, tuple[int, ...]], Array]
_SOURCES = ("data", "binary_data_size", "shared_memory_region")


class TensorsRequest(NamedTuple):
    """A decoded body; `options` say which outputs to return, and how.

    With `is_whole`, tensors have no rows, and stand in arrays of one row.
    """

    signature_name: str
    inputs: Tensors
    options: Options
    is_whole: bool = False

    @property
    def timeout_s(self) -> float | None:
        """The request's own timeout in seconds, if it has one."""
        return self.options.timeout_s


def decode(
    body: bytes,
    json_size: int | None,
    signatures: Mapping[str, Signature],
    bounds: Bounds = UNBOUNDED,
) -> TensorsRequest:
    """Return a request's inputs as arrays (rows, *shape); binary ones are views.

    `json_size` is the number of bytes of the body that are JSON; None: all of them.

    Raises:
        BadInput: the text names the input and what is wrong with it.
        TooLarge: more rows than the bounds allow, or too many parts.
        Unsupported: shared memory, or another feature that is not built here.
        Unavailable: too many large bodies at once.
        BasketError: the check of the bounds raised it.
    """
    name, signature = main_signature(signatures)
    if json_size == 0:
        return _decode_raw(body, name, signature)
    if json_size is not None and json_size > len(body):
        raise BadInput(
            f"{json_size} bytes of JSON are announced, and the body has {len(body)}"
        )
    text = body[:json_size]
    tail = None
    if json_size is not None:
        tail = binary_tensors.Tail(memoryview(body)[json_size:])
    if len(text) < json_text.MIN_SPLIT_BYTES:
        return _request(json_text.loads(text), name, signature, tail, bounds)
    with json_text.opened(text, bounds.check) as payload:
        return _request(payload, name, signature, tail, bounds)


def _request(
    payload: Any,
    name: str,
    signature: Signature,
    tail: binary_tensors.Tail | None,
    bounds: Bounds,
) -> TensorsRequest:
    """Return the request of a body's JSON, and of the bytes behind it."""
    if not isinstance(payload, dict):
        raise BadInput('expected a JSON object: {"inputs": [...]}')
    options = read_options(payload, signature)
    read = partial(_read_json, tail=tail, bounds=bounds)
    inputs = read_inputs(payload.get("inputs"), signature, bounds, read)
    if tail is not None:
        tail.finish()
    return TensorsRequest(name, inputs, options, signature.takes_whole_tensors)


def encode(
    model_name: str, version: int, request: TensorsRequest, outputs: Tensors
) -> tuple[bytes, int | None]:
    """Return the body with the requested outputs, and its JSON's size in bytes.

    The size is None if all of the body is JSON.

    Raises:
        BadInput: JSON is requested for a string that is not UTF-8.
    """
    described = []
    chunks = []
    options = request.options
    for wanted in options.outputs:
        array = outputs[wanted.name]
        if request.is_whole:
            array = array.reshape(array.shape[1:])
        output: dict[str, Any] = {
            "name": wanted.name,
            "datatype": datatype_of(array.dtype),
            "shape": array.shape,
        }
        if wanted.binary:
            chunks.append(chunk := binary_tensors.write(array))
            output["parameters"] = {"binary_data_size": len(chunk)}
        else:
            output["data"] = json_tensors.write(array, wanted.name)
        described.append(output)
    answer: dict[str, Any] = {"model_name": model_name, "model_version": str(version)}
    if options.id is not None:
        answer["id"] = options.id
    head = json_text.dumps_any_float(answer | {"outputs": described})
    # By Triton's extension, a response without bytes behind the JSON is plain JSON.
    if not any(map(len, chunks)):
        return head, None
    return b"".join([head, *chunks]), len(head)


def _decode_raw(body: bytes, name: str, signature: Signature) -> TensorsRequest:
    """Return a request of one row of the only input, with all outputs in binary."""
    if len(signature.inputs) != 1:
        names = ", ".join(spec.name for spec in signature.inputs)
        raise BadInput(
            f"a body without JSON is one input, and the model takes several: {names}"
        )
    (spec,) = signature.inputs
    options = read_options({"parameters": {"binary_data_output": True}}, signature)
    row = binary_tensors.read_row(memoryview(body), spec)
    return TensorsRequest(
        name, {spec.name: row}, options, signature.takes_whole_tensors
    )


def read_inputs(
    given: Any, signature: Signature, bounds: Bounds, read: ReadValues
) -> Tensors:
    """Return all inputs in the model's order, each with the same number of rows.

    `given` has a tensor for each input, with its name, datatype and shape; `read`
    returns its values.

    Raises:
        BadInput: the text names the input and what is wrong with it.
        TooLarge: more rows than the bounds allow.
    """
    is_whole = signature.takes_whole_tensors
    if not isinstance(given, list) or not given:
        raise BadInput("inputs: expected a list with at least one tensor")
    specs = signature.inputs_by_name
    found: dict[str, Array] = {}
    for number, tensor in enumerate(given):
        name = tensor.get("name") if isinstance(tensor, dict) else None
        if not isinstance(name, str) or name not in specs:
            raise BadInput(
                f"inputs[{number}]: expected a tensor with the name of an input, "
                f"{' or '.join(specs)}, given {shown(name)}"
            )
        if name in found:
            raise BadInput(f"input {name!r} is given twice")
        array = _input(tensor, specs[name], is_whole, bounds, read)
        found[name] = array[np.newaxis] if is_whole else array
    for name in specs:
        if name not in found:
            raise BadInput(f"input {name!r} is missing")
    if len(found) == 1:
        return found
    check_equal_rows(found, "input {!r}")
    return {name: found[name] for name in specs}


def _input(
    tensor: Mapping[str, Any],
    spec: TensorSpec,
    is_whole: bool,
    bounds: Bounds,
    read: ReadValues,
) -> Array:
    """Return an input's rows (rows, *shape), or its whole tensor."""
    place = f"input {spec.name!r}"
    wanted = datatype_of(spec.dtype)
    if tensor.get("datatype") != wanted:
        given = shown(tensor.get("datatype"))
        raise BadInput(f"{place}: expected datatype {wanted}, given {given}")
    sizes = _sizes(tensor.get("shape"))
    rank = 0 if is_whole else 1
    # Triton's configuration allows no empty dims: by it, a scalar has [1].
    is_scalar = not spec.shape and not spec.any_rank
    has_one = is_scalar and sizes is not None and sizes[rank:] == (1,)
    kept = sizes[:rank] if sizes is not None and has_one else sizes
    text = partial(shown, tensor.get("shape"))
    shape = tensor_shape.check(kept, text, spec, is_whole, place)
    if not is_whole and shape[0] > bounds.max_rows:
        raise too_many_rows(bounds.max_rows, shape[0])
    return read(tensor, spec, sizes or shape).reshape(shape)


def _read_json(
    tensor: Mapping[str, Any],
    spec: TensorSpec,
    shape: tuple[int, ...],
    *,
    tail: binary_tensors.Tail | None,
    bounds: Bounds,
) -> Array:
    """Return a tensor's values, which stand in the JSON or behind it."""
    place = f"input {spec.name!r}"
    parameters = parameters_of(tensor, place)
    data = tensor.get("data")
    size = parameters.get("binary_data_size")
    shared = parameters.get("shared_memory_region")
    sources = data, size, shared
    if sources.count(None) != len(_SOURCES) - 1:
        given = itertools.compress(_SOURCES, [each is not None for each in sources])
        raise BadInput(
            f"{place}: expected one of {', '.join(_SOURCES)}, given "
            f"{' and '.join(given) or 'none'}"
        )
    if data is not None:
        return json_tensors.read(data, spec, shape, bounds)
    if shared is not None:
        raise Unsupported(f"{place}: shared memory is not built here")
    if type(size) is not int or size < 0:
        raise BadInput(
            f"{place}: binary_data_size: expected a number of bytes, given "
            f"{shown(size)}"
        )
    if tail is None:
        raise BadInput(
            f"{place}: binary_data_size wants the header "
            "Inference-Header-Content-Length, which says where the JSON ends"
        )
    return binary_tensors.read(tail.take(size, place), spec, shape)


def _sizes(given: Any) -> tuple[int, ...] | None:
    """Return a tensor's shape, None if it is none."""
    if not isinstance(given, list):
        return None
    for size in given:
        if type(size) is not int or not 0 <= size < 1 << 63:
            return None
    return tuple(given)
