"""The Open Inference Protocol over HTTP: all routes under /v2 except infer.

What changes the server requires an admin key, which flask_app.py checks. The traffic
split is Basket's own addition.
"""

from typing import Any

from flask import Flask

from app.access.rights import Rights
from app.codec.v2.infer_options import flag, parameters_of
from app.errors import UnknownModel
from app.protocols.describe import Description, no_repository
from app.settings import Settings
from app.web.body import read_object
from app.web.head import head
from app.web.rollout_routes import add_rollout_routes


def add_v2_routes(
    app: Flask, describe: Description, rights: Rights, settings: Settings
) -> None:
    """Add all routes under /v2 except infer."""
    add_rollout_routes(app, settings)

    @app.get("/v2/health/live")
    def live() -> Any:
        is_live = describe.is_live()
        return {"live": is_live}, 200 if is_live else 503

    @app.get("/v2/health/ready")
    def ready() -> Any:
        is_ready = describe.is_ready()
        return {"ready": is_ready}, 200 if is_ready else 503

    def model_ready(model: str, version: int | None = None) -> Any:
        """To a stranger a model that does not exist is one that is not ready."""
        try:
            is_ready = describe.is_model_ready(model, version)
        except UnknownModel:
            if rights.is_client(head().headers):
                raise
            is_ready = False
        return {"name": model, "ready": is_ready}, 200 if is_ready else 503

    @app.get("/v2/models")
    def models() -> Any:
        return {"models": describe.model_names()}

    app.add_url_rule("/v2", view_func=describe.server, strict_slashes=False)
    app.add_url_rule("/v2/models/stats", view_func=describe.statistics)
    for rule in ("/v2/models/<model>", "/v2/models/<model>/versions/<version:version>"):
        app.add_url_rule(rule, view_func=describe.metadata)
        app.add_url_rule(f"{rule}/config", view_func=describe.config)
        app.add_url_rule(f"{rule}/stats", view_func=describe.statistics)
        app.add_url_rule(f"{rule}/ready", view_func=model_ready)

    def body(blank: bytes = b"{}") -> dict[str, Any]:
        return read_object(settings.max_body_bytes, blank)

    @app.post("/v2/repository/index")
    def index() -> Any:
        only_ready = flag(body(), "ready", "the body", default=False)
        return describe.index(only_ready=only_ready)

    @app.post("/v2/repository/models/<model>/load")
    def load(model: str) -> Any:
        describe.load(model, parameters_of(body(), "the body"))
        return {"name": model, "load": True}

    @app.post("/v2/repository/models/<model>/unload")
    def unload(model: str) -> Any:
        parameters_of(body(), "the body")
        describe.unload(model)
        return {"name": model, "unload": True}

    @app.post("/v2/repository/models/<model>/traffic")
    def traffic(model: str) -> Any:
        weights = body(blank=b"")
        describe.set_traffic(model, weights)
        return {"name": model, "traffic": weights}

    @app.post("/v2/repository/<repository>/index")
    @app.post("/v2/repository/<repository>/models/<model>/load")
    @app.post("/v2/repository/<repository>/models/<model>/unload")
    def of_repository(repository: str, model: str = "") -> Any:
        del model
        raise no_repository(repository)
