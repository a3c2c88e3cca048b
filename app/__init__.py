"""Basket serves Keras models over HTTP, with dynamic batching.

`create_app` is the one place where the parts meet.
"""

import socket
from typing import TYPE_CHECKING

from app import run_dir
from app.errors import BadInput

# BadInput, for the user's own code.
__all__ = ["BadInput", "create_app", "create_model_process", "install_api", "run_dir"]

if TYPE_CHECKING:
    from app.api.access.rights import Rights
    from app.api.application import Application
    from app.api.page.state import Observed
    from app.api.v2.repository import Repository
    from app.repository.catalog import Catalog
    from app.repository.health import Health
    from app.repository.loader import Loader
    from app.settings import Settings
    from app.shared_model.model_process import ModelProcess


def create_app(settings: "Settings | None" = None) -> "Application":
    """Build the WSGI application; its attribute `asgi` is the ASGI application.

    Of `app.extensions`, `basket.start()` begins to load models, `health.start()` shows
    stuck models to other processes, `sampler.start()` keeps what the page shows, and
    `rights.cross_site.listens_at(...)` says where the server listens.

    Raises:
        SettingsError: without `settings`, a bad value in the environment; a file of
            keys without keys.
    """
    # The Gunicorn master imports this module. The imports in here keep it small, and
    # let a HUP start workers with new code.
    # ruff: noqa: PLC0415
    from app.api.application import Application
    from app.asgi import AsgiApplication
    from app.commands import models_commands
    from app.repository.catalog import Catalog
    from app.settings import Settings
    from app.shared_model.remote_loader import RemoteLoader
    from app.telemetry import ModelMetrics

    settings = settings or Settings.from_environment()
    catalog = Catalog(settings.default_model, run_dir.notes_on(run_dir.DEFAULT_MODEL))
    loader: Repository
    if settings.model_process == "shared":
        paths = run_dir.model_sockets()
        loader = RemoteLoader(settings, catalog, ModelMetrics, paths)
    else:
        loader = _loader(settings, catalog)
    app = Application(__name__, static_folder=None)
    # A path with two slashes is a 404 and no redirect.
    app.url_map.merge_slashes = False
    health = _health(settings, catalog)
    app.extensions.update(basket=loader, health=health)
    install_api(app, settings, catalog, loader, health)
    app.cli.add_command(models_commands(settings))
    limits = settings.request_timeout_ms / 1000, settings.max_body_bytes
    app.asgi = AsgiApplication(app, *limits, loader.close)
    return app


def create_model_process(listener: socket.socket) -> "ModelProcess":
    """Build the process that holds the models of all web workers; `start` starts it.

    Raises:
        SettingsError: a bad value in the environment.
    """
    from app import telemetry
    from app.settings import Settings
    from app.shared_model.model_process import ModelProcess
    from app.shared_model.published_catalog import PublishedCatalog

    settings = Settings.from_environment()
    catalog = PublishedCatalog(settings, run_dir.notes_on(run_dir.DEFAULT_MODEL))
    health = _health(settings, catalog)
    loader = _loader(settings, catalog)
    return ModelProcess(catalog, loader, listener, health, telemetry.flush)


def _loader(settings: "Settings", catalog: "Catalog") -> "Loader":
    from app.repository.loader import Loader
    from app.repository.opener import Opener
    from app.repository.quarantine import Quarantine
    from app.telemetry import ModelMetrics

    unloaded = run_dir.notes_on(run_dir.UNLOADED)
    quarantine = Quarantine(run_dir.notes_on(run_dir.LOADING))
    return Loader(settings, catalog, Opener(ModelMetrics), unloaded, quarantine)


def _health(settings: "Settings", catalog: "Catalog") -> "Health":
    from app.repository.health import Health

    limit_s = settings.request_timeout_ms / 1000
    return Health(catalog, limit_s, run_dir.notes_on(run_dir.STUCK))


def _rights(settings: "Settings") -> "Rights":
    from app.api.access.cross_site import CrossSiteCheck
    from app.api.access.keys import Keys, KeysOfFile
    from app.api.access.rights import Rights

    def keys(fixed: tuple[str, ...], setting: str) -> Keys:
        file = getattr(settings, setting)
        if file is None:
            return Keys(fixed)
        return KeysOfFile(setting, file, run_dir.path_of(setting))

    return Rights(
        keys(settings.api_keys, "api_keys_file"),
        keys(settings.admin_keys, "admin_keys_file"),
        CrossSiteCheck(settings.allowed_hosts),
    )


def _observed(app: "Application") -> "Observed":
    from app.api.page.error_log import KEPT as KEPT_ERRORS
    from app.api.page.error_log import ErrorLog
    from app.api.page.ring import Ring
    from app.api.page.sampler import KEPT, Sampler
    from app.api.page.state import Observed

    samples = Ring(run_dir.path_of("samples"), KEPT)
    last = Ring(run_dir.path_of("last_sample"), 1)
    errors = ErrorLog(Ring(run_dir.path_of("errors"), KEPT_ERRORS))
    notes = run_dir.notes_on(run_dir.PROCESSES)
    lock = run_dir.path_of("sampler")
    app.extensions["sampler"] = Sampler(samples, last, errors, notes, lock)
    return Observed(samples, errors, notes, run_dir.ended)


def install_api(
    app: "Application",
    settings: "Settings",
    catalog: "Catalog",
    loader: "Repository",
    health: "Health",
) -> None:
    """Register error handlers, the checks of rights and all routes."""
    from app.api import predict
    from app.api.access.rights import install_checks
    from app.api.inference import Inference
    from app.api.operations import operations_blueprint
    from app.api.page.page import page_blueprint
    from app.api.page.state import state_blueprint
    from app.api.responses import install_error_handlers
    from app.api.v1 import predict as v1
    from app.api.v2 import infer as v2

    install_error_handlers(app)
    rights = _rights(settings)
    app.extensions["rights"] = rights
    install_checks(app, rights)
    inference = Inference(catalog, settings)
    predict.declare(app)
    v2.declare(app)
    finds = [part.finder(inference) for part in (predict, v1, v2)]
    observed = _observed(app)
    app.install_handlers(finds, rights.check, observed.errors.add)
    for blueprint in (
        v1.v1_blueprint(catalog),
        *v2.v2_blueprints(catalog, loader, settings, health, rights),
        operations_blueprint(catalog, health, rights),
        page_blueprint(),
        state_blueprint(catalog, settings, rights, observed),
    ):
        app.register_blueprint(blueprint)
