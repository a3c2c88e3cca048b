"""TensorFlow Serving's REST API but for :predict: states and metadata.

The two patterns are TensorFlow Serving's. They match the path as it was sent. A path or
method that matches neither is a 400, not a 404 or 405.
"""

import re
from typing import Any, NoReturn

from flask import Flask, request

from app.errors import BadInput, Unsupported
from app.protocols.describe import METHOD_NAME, Description
from app.protocols.v1 import PREFIXES, VERB_PATH, VERSION, target_of
from app.repository.routing import Target
from app.web.head import head

_MODEL_PATH = re.compile(
    rf"/v1/models(?:/(?P<name>[^/:]+))?{VERSION}(?P<metadata>/metadata)?",
    re.IGNORECASE,
)


def add_v1_routes(app: Flask, describe: Description) -> None:
    """Answer all paths under /v1/, before Flask looks for a rule."""

    @app.before_request
    def v1() -> Any:
        if not request.path.startswith(PREFIXES):
            return None
        path = head().raw_path
        if request.method == "POST" and (found := VERB_PATH.fullmatch(path)):
            _refuse_verb(describe, target_of(found), found["verb"].lower())
        if request.method == "GET" and (found := _MODEL_PATH.fullmatch(path)):
            target = target_of(found)
            if target.name is None:
                if target.version is not None or target.label is not None:
                    raise BadInput("Missing model name in request.")
                return {"models": describe.all_names()}
            if found["metadata"] is not None:
                return describe.signatures(target)
            # As in TensorFlow Serving, a status ignores a label.
            return describe.status(target.name, target.version)
        origin = request.headers.get("Origin", "")
        if request.method == "OPTIONS" and origin.startswith(("http://", "https://")):
            return {}
        raise BadInput(f"Malformed request: {request.method} {path[:200]}")


def _refuse_verb(describe: Description, target: Target, verb: str) -> NoReturn:
    """Raise the error for a verb of which no model here is capable."""
    # Raises if there is no such model.
    describe.signatures(target)
    if verb == "explain":
        raise Unsupported("no model here has an explainer")
    kind = {"classify": "classification", "regress": "regression"}[verb]
    raise BadInput(
        f"Expected {kind} signature method_name to be tensorflow/serving/{verb}. "
        f"Was: {METHOD_NAME}"
    )
