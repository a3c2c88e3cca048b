"""Basket serves Keras models over HTTP, in batches of whoever comes together.

`create_app` is the one place where the parts meet.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

    from app.serving.catalog import Catalog
    from app.serving.loader import Loader
    from app.settings import Settings


# Where a server's workers share files; set by the server, and no setting.
RUN_DIR = "_BASKET_RUN_DIR"


def create_app(settings: "Settings | None" = None) -> "Flask":
    """Build the application; `app.extensions["basket"]`, a Loader, starts it.

    Raises:
        SettingsError: with no settings given, a bad value in the environment.
    """
    # The Gunicorn master reads app.settings and app.gpus. With the imports in here
    # it stays free of all else, and a HUP brings workers with fresh code.
    # ruff: noqa: PLC0415
    from flask import Flask

    from app.commands import models_commands
    from app.serving.catalog import Catalog
    from app.serving.loader import Loader
    from app.serving.opening import Opener
    from app.serving.unloaded import Unloaded
    from app.settings import Settings
    from app.telemetry import ModelMetrics

    settings = settings or Settings.from_environment()
    catalog = Catalog(settings.default_model)
    opener = Opener(ModelMetrics)
    loader = Loader(settings, catalog, opener, Unloaded(_shared("unloaded")))
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.extensions["basket"] = loader
    _install_api(app, settings, catalog, loader)
    app.cli.add_command(models_commands(settings))
    return app


def _install_api(
    app: "Flask", settings: "Settings", catalog: "Catalog", loader: "Loader"
) -> None:
    from app.api.access import install_api_keys
    from app.api.inference import Inference, install_timing
    from app.api.operations import operations_blueprint
    from app.api.predict import predict_blueprint
    from app.api.responses import install_error_handlers
    from app.api.v1 import v1_blueprint
    from app.api.v2 import v2_blueprints

    install_error_handlers(app)
    # Before the keys are checked, so that a 401 is timed too.
    install_timing(app)
    install_api_keys(app, settings.api_keys)
    inference = Inference(catalog, settings)
    for blueprint in (
        predict_blueprint(inference),
        v1_blueprint(catalog, inference),
        *v2_blueprints(catalog, inference, loader, settings),
        operations_blueprint(catalog),
    ):
        app.register_blueprint(blueprint)


def _shared(name: str) -> "Path | None":
    """A folder that the server's workers share; None: nobody has made one."""
    run_dir = os.environ.get(RUN_DIR)
    return Path(run_dir) / name if run_dir else None
