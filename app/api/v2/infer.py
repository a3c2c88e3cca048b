"""The Open Inference Protocol (V2) over HTTP, with Triton's binary tensor extension."""

import re
from functools import partial

from flask import Flask
from werkzeug.routing import BaseConverter

from app.api.application import Find, Handler
from app.api.describe import check_tensors
from app.api.environ import Environ, path_of, traffic_split_key
from app.api.exchange import Exchange, HttpResponse
from app.api.inference.inference import Inference
from app.codec.v2 import tensors
from app.engines.base import Tensors
from app.errors import BadInput
from app.repository.routing import Target
from app.repository.served import ServedModel

_JSON_SIZE = "Inference-Header-Content-Length"
# int() takes at most 4300 digits.
_VERSION = "[0-9]{1,4300}"
_RULES = (
    "/v2/models/<model>/infer",
    "/v2/models/<model>/versions/<version:version>/infer",
)
# The same for the path in the WSGI environment.
_PATH = re.compile(
    rf"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>{_VERSION}))?/infer"
)


class _VersionConverter(BaseConverter):
    """Matches a number of ASCII digits: Flask's int also takes those of all scripts."""

    regex = _VERSION

    def to_python(self, value: str) -> int:
        return int(value)


def declare(app: Flask) -> None:
    """Declare versions in paths, and the routes that predict, for 405 and OPTIONS."""
    app.url_map.converters["version"] = _VersionConverter
    for rule in _RULES:
        app.add_url_rule(rule, rule, methods=["POST"])


def finder(inference: Inference) -> Find:
    """Return a function that finds the handler of a request that predicts."""

    def find(environ: Environ) -> Handler | None:
        found = _PATH.fullmatch(path_of(environ))
        if found is None:
            return None
        return partial(_answer, inference, found["name"], found["version"])

    return find


async def _answer(
    inference: Inference, name: str, version: str | None, exchange: Exchange
) -> HttpResponse:
    number = None if version is None else int(version)
    # WSGI decodes the path's bytes as Latin-1.
    name = name.encode("latin-1").decode(errors="replace")
    target = Target(name, number, client=traffic_split_key(exchange.environ))
    return await inference.answer(exchange, target, (_decode, _encode))


def _decode(exchange: Exchange, body: bytes, model: ServedModel) -> tensors.Request:
    check_tensors(model)
    json_size = _json_size(exchange.header(_JSON_SIZE))
    bounds = exchange.bounds(model)
    return tensors.decode(body, json_size, model.signatures, bounds)


def _json_size(text: str | None) -> int | None:
    """Return the number of bytes of the body that are JSON; None: all of them."""
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,18}", text):
        raise BadInput(f"{_JSON_SIZE}: expected a number of bytes, given {text[:40]!r}")
    return int(text)


def _encode(
    exchange: Exchange, model: ServedModel, decoded: tensors.Request, outputs: Tensors
) -> HttpResponse:
    del exchange
    body, json_size = tensors.encode(model.name, model.version, decoded, outputs)
    if json_size is None:
        return HttpResponse(body)
    size = (_JSON_SIZE, str(json_size))
    return HttpResponse(body, "application/octet-stream", headers=[size])
