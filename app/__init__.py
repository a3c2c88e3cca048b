"""Basket serves Keras models over HTTP, with dynamic batching.

`create_app` is the one place where the parts meet.
"""

import socket
from functools import partial
from typing import TYPE_CHECKING

from app import run_dir
from app.errors import BadInput

# BadInput, for the user's own code.
__all__ = ["BadInput", "create_app", "create_model_process", "install_api", "run_dir"]

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.api.access.rights import Rights
    from app.api.application import Application
    from app.api.describe import Description, Repository
    from app.api.inference.inference import Inference
    from app.api.page.observed import Observed
    from app.api.recording.recording import Recording
    from app.asgi import AsgiApplication
    from app.batching.interfaces import Observer
    from app.grpc.server import GrpcServer
    from app.promotion.evidence import Evidence
    from app.repository.catalog import Catalog
    from app.repository.health import Health
    from app.repository.loader import Loader
    from app.settings import Settings
    from app.shared_model.model_process import ModelProcess
    from app.tracing.spans import Spans


def create_app(settings: "Settings | None" = None) -> "Application":
    """Build the WSGI application; its attribute `asgi` is the ASGI application.

    Of `app.extensions`, `basket.start()` loads models into `catalog`, `health.start()`
    shows stuck models to others, `sampler.start()` keeps what the page shows, `gauges`
    is for `telemetry.collect`, `recording` has a `close`, and
    `rights.cross_site.listens_at(...)` says where the server listens.

    Raises:
        SettingsError: a bad value in the environment, or a file of keys without keys.
    """
    # The Gunicorn master imports this module. The imports in here keep it small, and
    # let a HUP start workers with new code.
    # ruff: noqa: PLC0415
    from app.api.describe import Description
    from app.api.recording.recording import Recording
    from app.asgi import AsgiApplication
    from app.commands import models_commands
    from app.repository.catalog import Catalog
    from app.settings import Settings
    from app.shared_model.remote_loader import RemoteLoader
    from app.tracing.start import started_spans

    settings = settings or Settings.from_environment()
    spans, evidence = started_spans(), _evidence()
    catalog = Catalog(
        settings.default_model,
        run_dir.notes_on(run_dir.DEFAULT_MODEL),
        run_dir.notes_on(run_dir.READY_ONCE),
        needs_all=settings.ready == "all",
    )
    loader: Repository
    if settings.model_process == "shared":
        sockets = run_dir.model_sockets()
        loader = RemoteLoader(settings, catalog, _observe(spans), sockets)
    else:
        loader = _loader(settings, catalog, spans, evidence)
    app, health = _application(spans), _health(settings, catalog)
    app.extensions.update(basket=loader, catalog=catalog, health=health)
    app.extensions["recording"] = recording = Recording(settings, evidence)
    describe = Description(catalog, health, loader, settings.request_timeout_ms / 1000)
    inference = install_api(app, settings, catalog, describe, health, recording)
    app.cli.add_command(models_commands(settings))
    limits = settings.request_timeout_ms / 1000, settings.max_body_bytes
    app.asgi = asgi = AsgiApplication(app, *limits, loader.close)
    if isinstance(loader, RemoteLoader):
        asgi.attach = loader.attach
    asgi.grpc = _grpc_server(asgi, settings, inference, describe)
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
    from app.tracing.start import started_spans

    settings = Settings.from_environment()
    kept = run_dir.notes_on(run_dir.DEFAULT_MODEL)
    ready_once = run_dir.notes_on(run_dir.READY_ONCE)
    catalog = PublishedCatalog(settings.default_model, kept, ready_once)
    loader = _loader(settings, catalog, started_spans(), _evidence())
    health = _health(settings, catalog)
    return ModelProcess(catalog, loader, listener, health, telemetry.flush)


def _grpc_server(
    asgi: "AsgiApplication",
    settings: "Settings",
    inference: "Inference",
    describe: "Description",
) -> "GrpcServer | None":
    if settings.grpc_bind is None:
        return None
    from app.grpc.server import GrpcServer

    bind = settings.grpc_bind, settings.max_body_bytes
    rights = asgi.application.extensions["rights"]
    return GrpcServer(*bind, asgi, inference, describe, rights)


def _evidence() -> "Evidence":
    from app.promotion.evidence import Evidence

    return Evidence(run_dir.path_of("evidence"))


def _loader(
    settings: "Settings",
    catalog: "Catalog",
    spans: "Spans | None",
    evidence: "Evidence",
) -> "Loader":
    from app.promotion.record import Records
    from app.repository.loader import Loader
    from app.repository.loading.loads import Loads
    from app.repository.loading.opener import Opener
    from app.repository.loading.quarantine import Quarantine
    from app.repository.reconciler import Reconciler
    from app.repository.rollouts.decisions import Decisions
    from app.repository.rollouts.promotions import Promotions
    from app.repository.rollouts.rollout_files import RolloutFiles
    from app.unbuffered_metrics import promotion

    quarantine = Quarantine(run_dir.notes_on(run_dir.LOADING))
    loads = Loads(Opener(_observe(spans)), quarantine)
    rollouts = RolloutFiles(run_dir.path_of("rollouts"))
    records = Records(settings.capture_dir)
    decisions = Decisions(evidence, promotion)
    promotions = Promotions(catalog, records, rollouts, decisions)
    limit_s = settings.request_timeout_ms / 1000
    reconciler = Reconciler(catalog, loads, promotions, limit_s)
    return Loader(settings, catalog, reconciler, run_dir.notes_on(run_dir.UNLOADED))


def _observe(spans: "Spans | None") -> "Callable[[str, str], Observer]":
    from app.telemetry import ModelMetrics

    if spans is None:
        return ModelMetrics
    from app.tracing.traced_metrics import TracedMetrics

    return partial(TracedMetrics, spans)


def _application(spans: "Spans | None") -> "Application":
    from app.api.application import Application

    app = Application(__name__, static_folder=None)
    if spans is not None:
        from app.tracing.traced_application import TracedApplication

        app = TracedApplication(__name__, static_folder=None)
        app.spans = spans
    # A path with two slashes is a 404 and no redirect.
    app.url_map.merge_slashes = False
    return app


def _health(settings: "Settings", catalog: "Catalog") -> "Health":
    from app.repository.health import Health

    limit_s = settings.request_timeout_ms / 1000
    return Health(catalog, limit_s, run_dir.notes_on(run_dir.STUCK))


def _rights(settings: "Settings") -> "Rights":
    from app.api.access.allowed_origins import AllowedOrigins
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
        CrossSiteCheck(
            settings.allowed_hosts, AllowedOrigins(settings.allowed_origins)
        ),
    )


def _observed(app: "Application", settings: "Settings") -> "Observed":
    from app.api.page.error_log import ErrorLog
    from app.api.page.observed import Observed
    from app.api.page.ring import Ring
    from app.api.page.sampler import KEPT, Sampler
    from app.gpus import MemoryReader

    path_of, notes = run_dir.path_of, run_dir.notes_on(run_dir.PROCESSES)
    samples, last = Ring(path_of("samples"), KEPT), Ring(path_of("last_sample"), 1)
    lock, errors = path_of("sampler"), ErrorLog(path_of("errors"))
    observed = Observed(samples, errors, notes, run_dir.ended)
    gpu_memory = MemoryReader(settings.gpus)
    app.extensions["sampler"] = Sampler(observed, last, lock, gpu_memory)
    return observed


def install_api(
    app: "Application",
    settings: "Settings",
    catalog: "Catalog",
    describe: "Description",
    health: "Health",
    recording: "Recording",
) -> "Inference":
    """Register error handlers, checks and routes; return what predicts."""
    from app.api import predict
    from app.api.access.allowed_origins import AllowedOrigins
    from app.api.access.rights import install_checks
    from app.api.gauges import current
    from app.api.inference.inference import Inference
    from app.api.operations import operations_blueprint
    from app.api.page.page import page_blueprint
    from app.api.page.state import state_blueprint
    from app.api.responses import install_error_handlers
    from app.api.v1 import predict as v1
    from app.api.v2 import infer as v2
    from app.api.v2 import routes

    install_error_handlers(app)
    app.extensions["rights"] = rights = _rights(settings)
    install_checks(app, rights)
    if settings.allowed_origins:
        app.allowed_origins = AllowedOrigins(settings.allowed_origins)
    inference = Inference(catalog, settings, recording)
    predict.declare(app)
    v2.declare(app)
    finds = [part.finder(inference) for part in (predict, v1, v2)]
    observed = _observed(app, settings)
    app.extensions["gauges"] = partial(current, catalog, observed)
    app.install_handlers(finds, rights.check, observed.errors.add, recording.finished)
    for blueprint in (
        v1.v1_blueprint(catalog, describe),
        routes.health_blueprint(describe, rights),
        routes.metadata_blueprint(describe),
        routes.repository_blueprint(describe, settings.max_body_bytes),
        operations_blueprint(catalog, health, rights, observed),
        page_blueprint(),
        state_blueprint(catalog, settings, rights, observed),
    ):
        app.register_blueprint(blueprint)
    return inference
