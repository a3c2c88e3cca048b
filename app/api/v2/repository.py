"""The Open Inference Protocol over HTTP: Triton's model repository extension.

What changes the server requires an admin key: app/api/access checks it. The traffic
split is Basket's own addition.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from flask import Blueprint, Response, request

from app.api.body import read_body
from app.api.responses import json_response
from app.codec import json_text
from app.codec.compression import decompress
from app.codec.v2.infer_options import flag, parameters_of
from app.errors import BadInput, Unsupported
from app.repository.catalog import Catalog
from app.repository.served import IS_LOADING, State
from app.settings import Settings

# Of a body when it is unpacked; what is read here has a few names.
_MAX_UNPACKED_BYTES = 1 << 20
_READY = "READY"
_STATES = {
    State.LOADING: "LOADING",
    State.AVAILABLE: _READY,
    State.UNLOADING: "UNLOADING",
    State.END: "UNAVAILABLE",
}


class Repository(Protocol):
    """Changes what is served: a Loader, or a RemoteLoader of model processes."""

    def load(self, name: str, timeout_s: float) -> None:
        """Load a model, and wait until it is ready."""
        ...

    def unload(self, name: str, timeout_s: float) -> None:
        """Unload a model, and wait for its jobs."""
        ...

    def set_traffic(
        self, name: str, weights: Mapping[str, Any], timeout_s: float
    ) -> None:
        """Split a model's traffic by label; none: as basket.toml says."""
        ...


def repository_blueprint(
    catalog: Catalog, loader: Repository, settings: Settings
) -> Blueprint:
    """Return the routes index, load, unload and traffic."""
    blueprint = Blueprint("v2_repository", __name__)

    @blueprint.post("/v2/repository/index")
    def index() -> Response:
        only_ready = flag(_json_body(settings), "ready", "the body", default=False)
        entries = _all_entries(catalog)
        return json_response(
            [each for each in entries if not only_ready or each["state"] == _READY]
        )

    _add_changes(blueprint, loader, settings)

    @blueprint.post("/v2/repository/<repository>/index")
    @blueprint.post("/v2/repository/<repository>/models/<model>/load")
    @blueprint.post("/v2/repository/<repository>/models/<model>/unload")
    def of_repository(repository: str, model: str = "") -> Response:
        raise Unsupported(
            f"there is one repository, without a name; {repository[:80]!r} was given"
        )

    return blueprint


def _add_changes(blueprint: Blueprint, loader: Repository, settings: Settings) -> None:
    timeout_s = settings.request_timeout_ms / 1000

    @blueprint.post("/v2/repository/models/<model>/load")
    def load(model: str) -> Response:
        _check_no_override(parameters_of(_json_body(settings), "the body"))
        loader.load(model, timeout_s)
        return json_response({"name": model, "load": True})

    @blueprint.post("/v2/repository/models/<model>/unload")
    def unload(model: str) -> Response:
        parameters_of(_json_body(settings), "the body")
        loader.unload(model, timeout_s)
        return json_response({"name": model, "unload": True})

    @blueprint.post("/v2/repository/models/<model>/traffic")
    def traffic(model: str) -> Response:
        weights = _json_body(settings, is_required=True)
        loader.set_traffic(model, weights, timeout_s)
        return json_response({"name": model, "traffic": weights})


def _all_entries(catalog: Catalog) -> list[dict[str, str]]:
    """Return the entries of all models, except versions that V2 does not offer."""
    hidden = [
        (model.name, str(model.version))
        for model in catalog.models()
        if not model.has_tensors
    ]
    return [
        entry
        for name in catalog.names()
        for entry in _entries(catalog, name)
        if (name, entry.get("version")) not in hidden
    ]


def _entries(catalog: Catalog, name: str) -> list[dict[str, str]]:
    """Return an entry for each version of a model, or one if it has no version."""
    versions = [
        {
            "name": name,
            "version": str(status.version),
            "state": _STATES[status.state],
            "reason": status.error,
        }
        for status in catalog.status(name)
    ]
    if versions:
        return versions
    reason = catalog.unavailable_reason(name)
    state = "LOADING" if reason == IS_LOADING else "UNAVAILABLE"
    return [{"name": name, "state": state, "reason": reason}]


def _json_body(settings: Settings, *, is_required: bool = False) -> dict[str, Any]:
    """Return the body's JSON object, empty if there is no body and none is required."""
    sent = read_body(request.environ, settings.max_body_bytes)
    encoding = request.headers.get("Content-Encoding", "")
    limit_bytes = min(settings.max_body_bytes, _MAX_UNPACKED_BYTES)
    body = decompress(sent, encoding, limit_bytes)
    if not body.strip() and not is_required:
        return {}
    with json_text.opened_whole(body) as value:
        if not isinstance(value, dict):
            raise BadInput("the body: expected nothing or a JSON object")
        return value


def _check_no_override(parameters: Any) -> None:
    for name in parameters:
        if name == "config" or name.startswith("file:"):
            raise Unsupported(
                f"parameters.{name[:80]}: a model is loaded as its folder has it"
            )
