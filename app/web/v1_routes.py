"""TensorFlow Serving's REST API but for :predict: states and metadata.

The two patterns are TensorFlow Serving's. They match the path as it was sent. A path or
method that matches neither is a 400, not a 404 or 405.
"""

import re
from typing import NoReturn

from flask import Blueprint, Response, request
from werkzeug.routing import BaseConverter

from app.errors import BadInput, Unsupported
from app.protocols.describe import METHOD_NAME, Description, servable_not_found
from app.protocols.v1 import PREFIXES, VERB_PATH, VERSION, target_of
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.web.raw_path import raw_path_of
from app.web.responses import json_response

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_MODEL_PATH = re.compile(
    rf"/v1/models(?:/(?P<name>[^/:]+))?{VERSION}(?P<metadata>/metadata)?",
    re.IGNORECASE,
)


def v1_blueprint(catalog: Catalog, describe: Description) -> Blueprint:
    """Return all routes under /v1/ except :predict."""
    blueprint = Blueprint("v1", __name__)
    blueprint.record_once(
        lambda state: state.app.url_map.converters.update(anything=_Anything)
    )

    def answer(rest: str) -> Response:
        del rest
        path = raw_path_of(request.environ)
        if request.method == "POST" and (found := VERB_PATH.fullmatch(path)):
            _refuse_verb(catalog, target_of(found), found["verb"].lower())
        if request.method == "GET" and (found := _MODEL_PATH.fullmatch(path)):
            at_metadata = found["metadata"] is not None
            return _describe(describe, target_of(found), at_metadata)
        origin = request.headers.get("Origin", "")
        if request.method == "OPTIONS" and origin.startswith(("http://", "https://")):
            return json_response({})
        raise BadInput(f"Malformed request: {request.method} {path[:200]}")

    for prefix in PREFIXES:
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
