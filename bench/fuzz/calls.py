"""`python -m bench.fuzz.calls --calls 20000`: malformed gRPC calls to a new server.

No call may end as INTERNAL or UNKNOWN, no message of a stream may say as much, no
process may end, and a good call after each round gets its own rows.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from app.grpc.messages import message_class
from bench import machine
from bench.fuzz import models
from bench.report import header
from testing.server import Server, free_port, serving

_ROUND = 500
_TIMEOUT_S = 20
_INFER = "/inference.GRPCInferenceService/ModelInfer"
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_ROW = bytes(16)
# Method -> its request.
_REQUESTS = {
    _INFER: "inference.ModelInferRequest",
    _PREDICT: "tensorflow.serving.PredictRequest",
    "/tensorflow.serving.PredictionService/GetModelMetadata": (
        "tensorflow.serving.GetModelMetadataRequest"
    ),
    "/tensorflow.serving.ModelService/GetModelStatus": (
        "tensorflow.serving.GetModelStatusRequest"
    ),
    **{
        f"/inference.GRPCInferenceService/{name}": f"inference.{name}Request"
        for name in (
            *("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"),
            *("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"),
        )
    },
}
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_TEXTS = (
    *("", "quick", "digits", "till", "input", "image", "prices", "customer", "output"),
    *("FP32", "BYTES", "INT8", "1", "-1", "serving_default", "signature_def", "a/b"),
    *("timeout", "sequence_id", "shared_memory_region", "ä" * 40, "x" * 3000, "%00"),
)
_NUMBERS = (0, 1, 2, 3, 8, -1, 64, 2000, 1 << 20, (1 << 31) - 1, (1 << 62), -(1 << 62))
_METADATA = (
    *(("authorization", f"Bearer {models.KEY}"), ("authorization", "Bearer x")),
    *(("x-request-timeout-ms", "abc"), ("x-request-timeout-ms", "1")),
    *(("x-client-id", "c" * 500), ("traceparent", "00-x")),
)
_MOST_CONTENTS = 40
# No call has the admin key: the good call needs the model.
SETTINGS = {**models.SETTINGS, "admin_keys": "another"}
# The server's text of an error that is none of the client's.
_INTERNAL = "internal error; the server's log has more"
# gRPC's own text of a call that got no answer by its deadline.
_NO_ANSWER = "Deadline Exceeded"
# Codes of a call that only a fault of the server explains.
_FAULTS = ("INTERNAL", "UNKNOWN", "DATA_LOSS")


@dataclass
class Report:
    """The codes of all calls, and what was wrong."""

    codes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def bad(self) -> int:
        """Return the number of calls that did not end well."""
        return self.codes.total() - self.codes["OK"]


def fuzz(
    server: Server,
    address: str,
    calls: int,
    seed: int,
    progress: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Send malformed calls until so many did not end well, or one problem is found."""
    chance, report = random.Random(seed), Report()
    workers = server.workers()
    with grpc.insecure_channel(address) as channel:
        while report.bad() < calls and not report.problems:
            for _ in range(_ROUND):
                _send(channel, chance, report)
            _check(channel, server, workers, report)
            progress(report)
    return report


def _send(channel: Any, chance: random.Random, report: Report) -> None:
    method = chance.choice([*_REQUESTS, _INFER, _PREDICT, _INFER, _PREDICT, _STREAM])
    sent = _message(method, chance)
    metadata = [("authorization", f"Bearer {models.KEY}")]
    if chance.random() < 0.1:
        metadata = [chance.choice(_METADATA)]
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
    report.codes[code] += 1
    # A call may ask for a short deadline by itself; the server's text says so then.
    hangs = text == _NO_ANSWER and timeout_s == _TIMEOUT_S
    if code in _FAULTS or hangs or _is_leak(text):
        report.problems.append(f"{code}: {text}\n    to {method} {sent[:500]!r}")


def note_in_stream(report: Report, message: bytes, sent: bytes) -> None:
    """Count a message of a stream, if it is an error; it has a text and no code."""
    response = message_class("inference.ModelStreamInferResponse").FromString(message)
    text = response.error_message
    report.codes["error in a stream" if text else "OK"] += 1
    if text == _INTERNAL or _is_leak(text):
        report.problems.append(f"in a stream: {text}\n    to {sent[:500]!r}")


def _is_leak(text: str) -> bool:
    """Return whether a text shows the inside of the server."""
    return "Traceback" in text or "/app/" in text


def _message(method: str, chance: random.Random) -> bytes:
    """Return bytes: random ones, a random message, or a damaged one."""
    kind = chance.random()
    if kind < 0.15:
        return chance.randbytes(chance.randrange(200))
    name = _REQUESTS.get(method, _REQUESTS[_INFER])
    message = message_class(name)()
    if method in (_INFER, _STREAM, _PREDICT) and kind < 0.6:
        _fill_row(message, method)
        for _ in range(chance.randrange(1, 4)):
            _change(message, chance)
    else:
        _fill(message, chance, 4)
    sent = message.SerializeToString()
    return _damaged(sent, chance) if chance.random() < 0.3 else sent


def _fill_row(message: Any, method: str) -> None:
    """Make a valid request of one row."""
    if method == _PREDICT:
        message.model_spec.name = "quick"
        tensor = message.inputs["input"]
        tensor.dtype, tensor.tensor_content = 1, _ROW
        for size in (1, 2, 2):
            tensor.tensor_shape.dim.add(size=size)
        return
    message.model_name = "quick"
    message.inputs.add(name="input", datatype="FP32", shape=[1, 2, 2])
    message.raw_input_contents.append(_ROW)


def _fill(message: Any, chance: random.Random, depth: int) -> None:
    """Set random fields to random values."""
    for described in message.DESCRIPTOR.fields:
        if chance.random() < 0.6:
            _set(message, described, chance, depth)


def _change(message: Any, chance: random.Random) -> None:
    """Set one random field somewhere in a message."""
    inner = [
        value
        for described, value in message.ListFields()
        if described.message_type is not None
    ]
    if inner and chance.random() < 0.7:
        value = chance.choice(inner)
        if hasattr(value, "DESCRIPTOR"):
            _change(value, chance)
            return
        values = list(value.values()) if hasattr(value, "values") else list(value)
        if values and hasattr(values[0], "DESCRIPTOR"):
            _change(chance.choice(values), chance)
            return
    _set(message, chance.choice(list(message.DESCRIPTOR.fields)), chance, 3)


def _set(message: Any, described: Any, chance: random.Random, depth: int) -> None:
    name, kind = described.name, described.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key = chance.choice(_TEXTS)
        value = kind.fields_by_name["value"]
        if value.message_type is not None and depth:
            _fill(getattr(message, name)[key], chance, depth - 1)
    elif kind is not None:
        if not depth:
            return
        if described.is_repeated:
            for _ in range(chance.randrange(3)):
                _fill(getattr(message, name).add(), chance, depth - 1)
        else:
            _fill(getattr(message, name), chance, depth - 1)
    elif described.is_repeated:
        count = chance.choice([1, 2, 4, _MOST_CONTENTS])
        values = [_value(described, chance) for _ in range(count)]
        getattr(message, name).extend(values)
    else:
        setattr(message, name, _value(described, chance))


def _value(described: Any, chance: random.Random) -> Any:
    """Return a value that the field can hold."""
    kind = described.cpp_type
    if kind == described.CPPTYPE_STRING:
        if described.type == described.TYPE_BYTES:
            return chance.randbytes(chance.choice([0, 1, 16, 17, 300]))
        return chance.choice(_TEXTS)
    if kind == described.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if kind in (described.CPPTYPE_FLOAT, described.CPPTYPE_DOUBLE):
        return chance.choice([0.0, 1.5, float("nan"), float("inf"), 3e38])
    if kind == described.CPPTYPE_ENUM:
        return chance.choice([0, 1, 3, 7, 19, 99])
    number = chance.choice(_NUMBERS)
    if kind in (described.CPPTYPE_UINT32, described.CPPTYPE_UINT64):
        number = abs(number)
    is_narrow = kind in (described.CPPTYPE_INT32, described.CPPTYPE_UINT32)
    return number % (1 << 31) if is_narrow else number


def _damaged(sent: bytes, chance: random.Random) -> bytes:
    """Return the bytes with some cut off, changed or repeated."""
    data = bytearray(sent)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 2:
            data[at:at] = data[: chance.randrange(40)]
        elif at < len(data):
            data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


def _check(channel: Any, server: Server, workers: list[int], report: Report) -> None:
    """Check that a good call is answered, and that no process has ended."""
    message = message_class(_REQUESTS[_INFER])()
    _fill_row(message, _INFER)
    key = [("authorization", f"Bearer {models.KEY}")]
    call = channel.unary_unary(_INFER)
    answer = message_class("inference.ModelInferResponse").FromString(
        call(message.SerializeToString(), timeout=_TIMEOUT_S, metadata=key)
    )
    if list(answer.raw_output_contents) != [_ROW]:
        report.problems.append(f"a good call was answered with {answer}")
    if server.workers() != workers:
        report.problems.append(f"a process has ended: {server.log.read_text()}")


def main() -> int:
    """Run it; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.fuzz.calls", description=__doc__
    )
    parser.add_argument("--calls", type=int, default=20_000, help="malformed ones")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    options = parser.parse_args()
    command = ["bench.fuzz.calls", f"--calls={options.calls}", f"--seed={options.seed}"]
    print(header(command, machine.describe()), flush=True)
    address = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        models.write_models(Path(folder))
        settings = {**SETTINGS, "grpc_bind": address, "model_dir": folder}
        with serving(f"--threads={models.THREADS}", **settings) as server:
            report = fuzz(server, address, options.calls, options.seed, _progress)
    print(f"\n{report.bad()} malformed calls; {report.codes['OK']} that ended well")
    print("codes: " + ", ".join(f"{c}: {n}" for c, n in report.codes.most_common()))
    for problem in report.problems[:20]:
        print(f"PROBLEM {problem}")
    return 1 if report.problems else 0


def _progress(report: Report) -> None:
    print(f"{report.bad()} malformed calls", end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
