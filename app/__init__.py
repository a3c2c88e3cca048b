"""Basket serves Keras models over HTTP, in batches of whoever comes together.

`create_app` is the one place where the parts meet.
"""

import os
import socket
from typing import TYPE_CHECKING

from app import run_dir

if TYPE_CHECKING:
    from app.api.application import Application
    from app.api.v2_repository import Repository
    from app.repository.catalog import Catalog
    from app.repository.health import Health
    from app.repository.loader import Loader
    from app.settings import Settings
    from app.shared_model.process import ModelProcess


# Where processes note what is stuck, by their numbers, in the folder that they share.
STUCK_DIR = "stuck"
# Where model processes listen; set by the server, and no setting. Empty: nowhere.
MODEL_SOCKETS = "_BASKET_MODEL_SOCKETS"


def create_app(settings: "Settings | None" = None) -> "Application":
    """Build the application: a WSGI application, whose `asgi` is the ASGI one.

    `app.extensions["basket"]` starts it: a Loader, or a Mirror of model processes.
    `app.extensions["health"]` can tell other processes what is stuck in this one.

    Raises:
        SettingsError: with no settings given, a bad value in the environment.
    """
    # The Gunicorn master reads app.settings and app.gpus. With the imports in here
    # it stays free of all else, and a HUP brings workers with fresh code.
    # ruff: noqa: PLC0415
    from app.api.application import Application
    from app.asgi import AsgiApplication
    from app.commands import models_commands
    from app.repository.catalog import Catalog
    from app.settings import Settings
    from app.shared_model.mirror import Mirror
    from app.telemetry import ModelMetrics

    settings = settings or Settings.from_environment()
    catalog = Catalog(settings.default_model)
    health = _health(settings, catalog)
    loader: Repository
    if settings.model_process == "shared":
        paths = os.environ.get(MODEL_SOCKETS, "").splitlines()
        loader = Mirror(settings, catalog, ModelMetrics, paths)
    else:
        loader = _loader(settings, catalog)
    app = Application(__name__, static_folder=None)
    # No path leads to another one: each is a route, or there is nothing at it.
    app.url_map.merge_slashes = False
    app.extensions["basket"] = loader
    app.extensions["health"] = health
    install_api(app, settings, catalog, loader, health)
    app.cli.add_command(models_commands(settings))
    limits = settings.request_timeout_ms / 1000, settings.max_body_bytes
    app.asgi = AsgiApplication(app, *limits, loader.close)
    return app


def create_model_process(listener: socket.socket) -> "ModelProcess":
    """Build what holds the models where web workers hold none; `start` starts it.

    Raises:
        SettingsError: a bad value in the environment.
    """
    from app import telemetry
    from app.settings import Settings
    from app.shared_model.process import ModelProcess
    from app.shared_model.published import PublishedCatalog

    settings = Settings.from_environment()
    catalog = PublishedCatalog(settings)
    health = _health(settings, catalog)
    loader = _loader(settings, catalog)
    return ModelProcess(catalog, loader, listener, health, telemetry.flush)


def _loader(settings: "Settings", catalog: "Catalog") -> "Loader":
    from app.repository.loader import Loader
    from app.repository.opener import Opener
    from app.run_dir.load_attempts import Attempts
    from app.run_dir.unloaded_models import Unloaded
    from app.telemetry import ModelMetrics

    unloaded = Unloaded(run_dir.shared("unloaded"))
    attempts = Attempts(run_dir.shared("loading"))
    return Loader(settings, catalog, Opener(ModelMetrics), unloaded, attempts)


def _health(settings: "Settings", catalog: "Catalog") -> "Health":
    from app.repository.health import Health

    return Health(
        catalog, settings.request_timeout_ms / 1000, run_dir.shared(STUCK_DIR)
    )


def install_api(
    app: "Application",
    settings: "Settings",
    catalog: "Catalog",
    loader: "Repository",
    health: "Health",
) -> None:
    """Give the application its routes, and what stands before them."""
    from app.api import predict, v1, v2
    from app.api.access import install_key_check, key_check
    from app.api.inference import Inference
    from app.api.operations import operations_blueprint
    from app.api.responses import install_error_handlers

    install_error_handlers(app)
    check_key = key_check(settings.api_keys)
    install_key_check(app, check_key)
    inference = Inference(catalog, settings)
    predict.declare(app)
    v2.declare(app)
    finds = [part.finder(inference) for part in (predict, v1, v2)]
    app.answer_below(finds, check_key)
    for blueprint in (
        v1.v1_blueprint(catalog),
        *v2.v2_blueprints(catalog, loader, settings, health),
        operations_blueprint(catalog, health),
    ):
        app.register_blueprint(blueprint)
