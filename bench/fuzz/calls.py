"""Malformed gRPC calls.

No call may end as INTERNAL or UNKNOWN, no message of a stream may say as much, no
process may end, and a good call after each round gets its own rows.
"""

import random
from typing import Any

import grpc
import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from app.protocols.grpc_messages import message_class, pool
from bench.fuzz import models
from bench.fuzz.edits import damaged_bytes
from bench.fuzz.report import Report, run
from testing.grpc_messages import INFER, METHODS, output_of, request_of
from testing.server import Server

_ROUND = 500
_TIMEOUT_S = 20
_ROW = np.array([models.QUICK_ROW], np.float32)
_SERVICES = (
    "inference.GRPCInferenceService",
    *("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"),
)
# Method -> its request.
_REQUESTS = {
    f"/{service}/{method.name}": method.input_type.full_name
    for service in _SERVICES
    for method in pool().FindServiceByName(service).methods
}
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_TEXTS = (
    *("", "quick", "digits", "till", "input", "image", "prices", "customer", "output"),
    *("FP32", "BYTES", "INT8", "1", "-1", "serving_default", "signature_def", "a/b"),
    *("timeout", "sequence_id", "shared_memory_region", "ä" * 40, "x" * 3000, "%00"),
)
_NUMBERS = (0, 1, 2, 3, 8, -1, 64, 2000, 1 << 20, (1 << 31) - 1, (1 << 62), -(1 << 62))
_FLOATS = (0.0, 1.5, float("nan"), float("inf"), 3e38)
_VALUES: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_STRING: _TEXTS,
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_FLOAT: _FLOATS,
    FieldDescriptor.CPPTYPE_DOUBLE: _FLOATS,
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 3, 7, 19, 99),
    FieldDescriptor.CPPTYPE_INT64: _NUMBERS,
    FieldDescriptor.CPPTYPE_UINT64: tuple(map(abs, _NUMBERS)),
}
_NARROW = tuple(number % (1 << 31) for number in _NUMBERS)
_KEY = ("authorization", models.AUTHORIZATION[1])
_METADATA = (
    *(_KEY, ("authorization", "Bearer x"), ("x-client-id", "c" * 500)),
    *(("x-request-timeout-ms", "abc"), ("x-request-timeout-ms", "1")),
    ("traceparent", "00-x"),
)
# No call has the admin key: the good call needs the model.
SETTINGS = {**models.SETTINGS, "admin_keys": "another"}
# The server's text of an error that is none of the client's.
_INTERNAL = "internal error; the server's log has more"
# gRPC's own text of a call that got no answer by its deadline.
_NO_ANSWER = "Deadline Exceeded"
# Codes of a call that only a fault of the server explains.
_FAULTS = ("INTERNAL", "UNKNOWN", "DATA_LOSS")


def fuzz(server: Server, address: str, calls: int, seed: int) -> Report:
    """Send malformed calls until so many did not end well, or one problem is found."""
    chance = random.Random(seed)
    with grpc.insecure_channel(address) as channel:

        def send_round(report: Report) -> None:
            for _ in range(_ROUND):
                _send(channel, chance, report)
            _check(channel, report)

        return run(server, calls, send_round)


def _send(channel: Any, chance: random.Random, report: Report) -> None:
    method = chance.choice([*_REQUESTS, *METHODS, *METHODS])
    sent = _message(method, chance)
    metadata = [chance.choice(_METADATA) if chance.random() < 0.1 else _KEY]
    if chance.random() < 0.02:
        method += "x"
    timeout_s = chance.choice([0.001, 0.01]) if chance.random() < 0.05 else _TIMEOUT_S
    try:
        if method == _STREAM:
            call = channel.stream_stream(method)
            for message in call(iter([sent] * 3), timeout=timeout_s, metadata=metadata):
                note_in_stream(report, message, sent)
            return
        channel.unary_unary(method)(sent, timeout=timeout_s, metadata=metadata)
        code, text = "OK", ""
    except grpc.RpcError as error:
        code, text = error.code().name, error.details()
    _count(report, code)
    # A call may ask for a short deadline by itself; the server's text says so then.
    hangs = text == _NO_ANSWER and timeout_s == _TIMEOUT_S
    if code in _FAULTS or hangs or _is_leak(text):
        report.note(f"{code}: {text} of {method}", sent)


def note_in_stream(report: Report, message: bytes, sent: bytes) -> None:
    """Count a message of a stream, if it is an error; it has a text and no code."""
    response = message_class("inference.ModelStreamInferResponse").FromString(message)
    text = response.error_message
    _count(report, "error in a stream" if text else "OK")
    if text == _INTERNAL or _is_leak(text):
        report.note(f"in a stream: {text}", sent)


def _count(report: Report, code: str) -> None:
    report.statuses[code] += 1
    report.good += code == "OK"
    report.bad["calls"] += code != "OK"


def _is_leak(text: str) -> bool:
    """Return whether a text shows the inside of the server."""
    return "Traceback" in text or "/app/" in text


def _message(method: str, chance: random.Random) -> bytes:
    """Return bytes: random ones, a random message, or a damaged one."""
    kind = chance.random()
    if kind < 0.15:
        return chance.randbytes(chance.randrange(200))
    message = message_class(_REQUESTS[method])()
    if method in (*METHODS, _STREAM) and kind < 0.6:
        known = INFER if method == _STREAM else method
        message.MergeFromString(request_of(known, _ROW, "quick"))
        _fill(message, chance, 0.2)
    else:
        _fill(message, chance, 0.6)
    sent: bytes = message.SerializeToString()
    return damaged_bytes(sent, chance) if chance.random() < 0.3 else sent


def _fill(message: Any, chance: random.Random, share: float, depth: int = 4) -> None:
    """Set a share of the fields to random values, down to a depth."""
    for described in message.DESCRIPTOR.fields:
        if chance.random() >= share:
            continue
        name, kind = described.name, described.message_type
        value = getattr(message, name)
        if kind is None and described.is_repeated:
            count = chance.choice([1, 2, 4, 40])
            value.extend(_value(described, chance) for _ in range(count))
        elif kind is None:
            setattr(message, name, _value(described, chance))
        elif depth:
            inner = _inner(value, described, chance)
            if inner is not None:
                _fill(inner, chance, share, depth - 1)


def _inner(value: Any, described: Any, chance: random.Random) -> Any:
    """Return the message in a field, one of several or a new one; None: a plain map."""
    if described.message_type.GetOptions().map_entry:
        is_plain = described.message_type.fields_by_name["value"].message_type is None
        return None if is_plain else value[chance.choice(_TEXTS)]
    if not described.is_repeated:
        return value
    return chance.choice(value) if value and chance.random() < 0.5 else value.add()


def _value(described: Any, chance: random.Random) -> Any:
    """Return a value that the field can hold."""
    if described.type == FieldDescriptor.TYPE_BYTES:
        return chance.randbytes(chance.choice([0, 1, 16, 17, 300]))
    return chance.choice(_VALUES.get(described.cpp_type, _NARROW))


def _check(channel: Any, report: Report) -> None:
    """Check that a good call is answered."""
    sent = request_of(INFER, _ROW, "quick")
    answer = channel.unary_unary(INFER)(sent, timeout=_TIMEOUT_S, metadata=[_KEY])
    if not np.array_equal(output_of(INFER, answer), _ROW.reshape(1, -1)):
        report.note(f"a good call was answered with {answer!r}", sent)
