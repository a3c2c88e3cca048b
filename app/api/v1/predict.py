"""TensorFlow Serving's REST API, and the additions of KServe's V1.

The two patterns are TensorFlow Serving's. They match the path as it was sent: a name is
decoded after the match, so that it may contain / and :, and is only looked up in the
catalog. A path or method that matches neither is a 400, not a 404 or 405.
"""

import re
from functools import partial
from typing import NoReturn
from urllib.parse import quote, unquote_to_bytes

from flask import Blueprint, Response, request
from werkzeug.routing import BaseConverter

from app.api import upload, user_code
from app.api.application import Find, Handler
from app.api.describe import METHOD_NAME, Description, servable_not_found
from app.api.environ import Environ, traffic_split_key
from app.api.exchange import Exchange, HttpResponse
from app.api.inference.inference import Inference
from app.api.responses import json_response
from app.api.v1 import cloud_events
from app.codec import json_text, rows
from app.engines.base import Tensors
from app.errors import BadInput, Unsupported
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.repository.served import ServedModel
from app.settings.model_files import MAX_VERSION

_PREFIXES = ("/v1/", "/V1/")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_VERSION = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_VERB_PATH = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){_VERSION}:(?P<verb>predict|classify|regress|explain)",
    re.IGNORECASE,
)
_MODEL_PATH = re.compile(
    rf"/v1/models(?:/(?P<name>[^/:]+))?{_VERSION}(?P<metadata>/metadata)?",
    re.IGNORECASE,
)


def finder(inference: Inference) -> Find:
    """Return a function that finds the handler of a request that predicts."""

    def find(environ: Environ) -> Handler | None:
        if not environ["PATH_INFO"].startswith(_PREFIXES):
            return None
        found = _VERB_PATH.fullmatch(_raw_path(environ))
        if found is None or found["verb"].lower() != "predict":
            return None
        return partial(_predict, inference, found)

    return find


def v1_blueprint(catalog: Catalog, describe: Description) -> Blueprint:
    """Return all routes under /v1/ except :predict."""
    blueprint = Blueprint("v1", __name__)
    blueprint.record_once(
        lambda state: state.app.url_map.converters.update(anything=_Anything)
    )

    def answer(rest: str) -> Response:
        del rest
        path, environ = _raw_path(request.environ), request.environ
        if request.method == "POST" and (found := _VERB_PATH.fullmatch(path)):
            _refuse_verb(catalog, _target(found, environ), found["verb"].lower())
        if request.method == "GET" and (found := _MODEL_PATH.fullmatch(path)):
            at_metadata = found["metadata"] is not None
            return _describe(describe, _target(found, environ), at_metadata)
        origin = request.headers.get("Origin", "")
        if request.method == "OPTIONS" and origin.startswith(("http://", "https://")):
            return json_response({})
        raise BadInput(f"Malformed request: {request.method} {path[:200]}")

    for prefix in _PREFIXES:
        blueprint.add_url_rule(
            f"{prefix}<anything:rest>",
            view_func=answer,
            methods=_METHODS,
            provide_automatic_options=False,
        )
    return blueprint


class _Anything(BaseConverter):
    """Matches any text: unlike Flask's path, also none, and slashes at any place."""

    part_isolating = False
    regex = r"[\s\S]*"


def _raw_path(environ: Environ) -> str:
    """Return the path as the client sent it, percent-encoded."""
    sent: str = environ.get("RAW_URI") or environ.get("REQUEST_URI") or ""
    if not sent:
        path = environ.get("SCRIPT_NAME", "") + environ["PATH_INFO"]
        sent = quote(path.encode("latin-1"), safe="/:")
    # An absolute-form request has the host, and a mounted application its prefix.
    path = re.sub("^https?://[^/]*", "", sent, flags=re.IGNORECASE).partition("?")[0]
    return path.removeprefix(environ.get("SCRIPT_NAME", ""))


def _target(found: re.Match[str], environ: Environ) -> Target:
    digits = found["version"]
    version = None
    if digits is not None:
        significant = digits.lstrip("0") or "0"
        # Shortened, as int() takes at most 4300 digits.
        version = int(significant[:20])
        if version > MAX_VERSION:
            raise BadInput(f"Failed to convert version: {digits[:40]} to numeric.")
    name, label = _decoded(found["name"]), _decoded(found["label"])
    return Target(name, version, label, traffic_split_key(environ))


def _decoded(part: str | None) -> str | None:
    if part is None:
        return None
    return unquote_to_bytes(part.encode("latin-1", "replace")).decode(errors="replace")


async def _predict(
    inference: Inference, found: re.Match[str], exchange: Exchange
) -> HttpResponse:
    target = _target(found, exchange.environ)
    with servable_not_found(target):
        return await inference.answer(
            exchange, target, (_decode, _encode), calls_service=True
        )


def _refuse_verb(catalog: Catalog, target: Target, verb: str) -> NoReturn:
    """Raise the error for a verb of which no model here is capable."""
    with servable_not_found(target), catalog.lease(target):
        pass
    if verb == "explain":
        raise Unsupported("no model here has an explainer")
    kind = {"classify": "classification", "regress": "regression"}[verb]
    raise BadInput(
        f"Expected {kind} signature method_name to be tensorflow/serving/{verb}. "
        f"Was: {METHOD_NAME}"
    )


def _describe(describe: Description, target: Target, at_metadata: bool) -> Response:
    """Return the names of all models, or a model's metadata or status.

    As in TensorFlow Serving, a status ignores a label.
    """
    if target.name is None:
        if target.version is not None or target.label is not None:
            raise BadInput("Missing model name in request.")
        return json_response({"models": describe.all_names()})
    if at_metadata:
        return json_response(describe.signatures(target))
    return json_response(describe.status(target.name, target.version))


def _decode(exchange: Exchange, body: bytes, model: ServedModel) -> rows.Request:
    if model.reads_instances:
        return _decode_instances(exchange, body, model)
    # Any Content-Type may stand beside JSON, as in TensorFlow Serving.
    if not body.startswith(b"{") and upload.has_pictures(exchange.mimetype, body):
        return upload.decode(exchange, body, model)
    bounds = exchange.bounds(model)
    image = model.config.image
    if exchange.mimetype == cloud_events.STRUCTURED:
        with json_text.opened(body, bounds.check, ignore_tail=True) as event:
            data = cloud_events.data_of(event)
            if not isinstance(data, bytes):
                return rows.read(data, body, model.signatures, image, bounds)
        body = data
    # As TensorFlow Serving does.
    return rows.decode(body, model.signatures, image, bounds, ignore_tail=True)


def _decode_instances(
    exchange: Exchange, body: bytes, model: ServedModel
) -> rows.Request:
    if exchange.mimetype == cloud_events.STRUCTURED:
        check = exchange.check_awaited
        with json_text.opened_whole(body, check, ignore_tail=True) as event:
            data = cloud_events.data_of(event)
            if not isinstance(data, bytes):
                return user_code.read(exchange, data, model)
        body = data
    return user_code.decode(exchange, body, model, ignore_tail=True)


def _encode(
    exchange: Exchange, model: ServedModel, decoded: rows.Request, outputs: Tensors
) -> HttpResponse:
    if model.user_code is not None and model.writes_predictions:
        body = model.user_code.body_of(outputs)
    else:
        body = rows.encode(outputs, decoded.form)
    return cloud_events.wrap(exchange, body, model.name)
