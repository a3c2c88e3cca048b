"""The Open Inference Protocol (V2) over HTTP, with Triton's binary tensor extension."""

import re

from app.call import Call, Head, Reply
from app.codec.v2 import tensors
from app.engines.base import Tensors
from app.errors import BadInput
from app.protocols.protocol import Protocol, begins_with
from app.repository.routing import Target

_JSON_SIZE = "Inference-Header-Content-Length"
_BYTES = re.compile("[0-9]{1,18}")
# int() takes at most 4300 digits.
VERSION = "[0-9]{1,4300}"
_RULES = (
    "/v2/models/<model>/infer",
    "/v2/models/<model>/versions/<version:version>/infer",
)
# The same for a decoded path.
_PATH = re.compile(
    rf"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>{VERSION}))?/infer"
)


def _find(head: Head) -> Target | None:
    """Return the model in the path, None for other paths."""
    found = _PATH.fullmatch(head.path)
    if found is None:
        return None
    number = None if found["version"] is None else int(found["version"])
    name = found["name"].encode(errors="surrogateescape").decode(errors="replace")
    return Target(name, number)


def _decode(call: Call, body: bytes) -> tensors.TensorsRequest:
    """Return the tensors that are in JSON, or in bytes behind it."""
    size = call.header("inference-header-content-length")
    if size is not None and not _BYTES.fullmatch(size):
        raise BadInput(f"{_JSON_SIZE}: expected a number of bytes, given {size[:40]!r}")
    # Without the header, all of the body is JSON.
    json_size = None if size is None else int(size)
    return tensors.decode(body, json_size, call.model.signatures, call.bounds())


def _finish(call: Call, outputs: Tensors) -> Reply:
    """Return the outputs in JSON, or in bytes behind it."""
    model = call.model
    body, json_size = tensors.encode(model.name, model.version, call.decoded, outputs)
    if json_size is None:
        return Reply(body)
    lines = f"{_JSON_SIZE}: {json_size}\r\n"
    return Reply(body, "application/octet-stream", lines=lines)


INFER = Protocol(
    find=_find,
    begin=begins_with(_decode, takes_tensors=True),
    finish=_finish,
    rules=_RULES,
)
