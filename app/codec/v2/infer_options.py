"""The options of an Open Inference Protocol request: all but its inputs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from app.codec.json_arrays.split import Numbers
from app.codec.v2.datatypes import datatype_of
from app.engines.base import Signature, TensorSpec
from app.errors import BadInput, Unsupported

# The most characters of a client's text that an error repeats.
_SHOWN = 60
# Numbers that are not read are shown as null.
_encoder = json.JSONEncoder(default=lambda _: None)
# Triton's parameters for models that keep state over a sequence of requests.
_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
# Asks for a message that ends the responses to a request of a stream; each request has
# one response, which is marked as the last.
_ENDS_RESPONSES = "triton_enable_empty_final_response"


@dataclass(frozen=True)
class Wanted:
    """A requested output; if `binary`, its values stand behind the JSON."""

    name: str
    binary: bool


@dataclass(frozen=True)
class Options:
    """The requested outputs in their order, and the request's id and timeout."""

    outputs: tuple[Wanted, ...]
    id: str | None = None
    timeout_s: float | None = None


def read_options(payload: Mapping[str, Any], signature: Signature) -> Options:
    """Return the options of a request; null counts as not given.

    Raises:
        BadInput: an unknown output, or a value of the wrong type.
        Unsupported: a sequence, shared memory, a classification, or an output whose
            dtype has no datatype in the protocol.
    """
    request_id = payload.get("id")
    if not isinstance(request_id, str | None):
        raise BadInput(f"id: expected a string, given {shown(request_id)}")
    parameters = parameters_of(payload, "the request")
    _check_parameters(parameters)
    binary = flag(parameters, "binary_data_output", "parameters", default=False)
    return Options(
        read_outputs(payload.get("outputs"), signature, binary),
        request_id,
        _timeout_s(parameters.get("timeout")),
    )


def parameters_of(owner: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return the `parameters` of a request or a tensor, empty if there are none.

    Raises:
        BadInput: they are not an object.
    """
    parameters = owner.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise BadInput(
            f"{place}: parameters must be an object, given {shown(parameters)}"
        )
    return parameters


def flag(
    parameters: Mapping[str, Any], name: str, place: str, *, default: bool
) -> bool:
    """Return a boolean parameter, or `default` if it is not given.

    Raises:
        BadInput: it is of another type.
    """
    value = parameters.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadInput(f"{place}.{name}: expected true or false, given {shown(value)}")
    return value


def shown(value: Any) -> str:
    """Return a client's JSON value as text, shortened; the rest is not written."""
    text = ""
    for piece in _encoder.iterencode(value):
        text += piece
        if len(text) > _SHOWN:
            return f"{text[:_SHOWN]}..."
    return text


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        if name.startswith("triton_") and name != _ENDS_RESPONSES:
            raise BadInput(
                f"parameters.{name[:_SHOWN]}: names that begin with triton_ are "
                "reserved"
            )
        if isinstance(value, dict | list | Numbers):
            raise BadInput(
                f"parameters.{name[:_SHOWN]}: expected a string, a number or a "
                f"boolean, given {shown(value)}"
            )
    for name in _SEQUENCE:
        if parameters.get(name):
            raise Unsupported(
                f"parameters.{name}: models here keep nothing from one request to "
                "the next"
            )


def _timeout_s(micros: Any) -> float | None:
    """Return the timeout in seconds; 0 is none, as in Triton."""
    if micros is None:
        return None
    if type(micros) is not int or micros < 0:
        raise BadInput(
            "parameters.timeout: expected a whole number of microseconds, given "
            f"{shown(micros)}"
        )
    return micros / 1e6 or None


def read_outputs(given: Any, signature: Signature, binary: bool) -> tuple[Wanted, ...]:
    """Return the requested outputs; all outputs if the request names none.

    Raises:
        BadInput, Unsupported: as `read_options`.
    """
    if not isinstance(given, list | None):
        raise BadInput(f"outputs: expected a list, given {shown(given)}")
    specs = signature.outputs_by_name
    if not given:
        wanted = dict(zip(specs, map(Wanted, specs, repeat(binary)), strict=True))
    else:
        wanted = {}
        for number, output in enumerate(given):
            one = _output(output, f"outputs[{number}]", specs, binary)
            if one.name in wanted:
                raise BadInput(f"outputs[{number}]: {one.name!r} is named twice")
            wanted[one.name] = one
    for one in wanted.values():
        datatype = datatype_of(specs[one.name].dtype)
        if datatype == "FP16" and not one.binary:
            raise BadInput(
                f"output {one.name!r} is FP16, which has no form in JSON: ask for it "
                "with binary_data"
            )
    return tuple(wanted.values())


def _output(
    output: Any, place: str, specs: Mapping[str, TensorSpec], binary: bool
) -> Wanted:
    name = output.get("name") if isinstance(output, dict) else None
    if not isinstance(name, str):
        raise BadInput(f'{place}: expected {{"name": ...}}, given {shown(output)}')
    if name not in specs:
        raise BadInput(
            f"{place}: the model has no output {name[:_SHOWN]!r}, it has: "
            f"{', '.join(specs)}"
        )
    parameters = parameters_of(output, place)
    for kind in ("classification", "shared_memory_region"):
        if parameters.get(kind):
            raise Unsupported(f"{place}: {kind} is not built here")
    own = flag(parameters, "binary_data", f"{place}.parameters", default=binary)
    return Wanted(name, own)
