"""Basket serves Keras models over HTTP and gRPC, with dynamic batching.

`create_app` is the one place where the parts meet.
"""

import socket
from functools import partial
from typing import TYPE_CHECKING

from app import run_dir
from app.errors import BadInput

# BadInput, for the user's own code.
__all__ = ["BadInput", "create_app", "create_model_process", "run_dir"]

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.access.rights import Rights
    from app.batching.interfaces import Observer
    from app.promotion.evidence import Evidence
    from app.protocols.describe import Description
    from app.repository.catalog import Catalog
    from app.repository.health import Health
    from app.repository.loader import Loader
    from app.rims.grpc.server import GrpcServer
    from app.serving.loops import Loops
    from app.serving.predictor import Predictor
    from app.serving.server import Server
    from app.settings import Settings
    from app.shared_model.model_process import ModelProcess
    from app.tracing.spans import Spans
    from app.web.page.observed import Observed
    from app.web.page.sampler import Sampler


def create_app(settings: "Settings | None" = None) -> "Server":
    """Build a server, which loads and answers nothing before its parts are started.

    Raises:
        SettingsError: a bad value in the environment, or a file of keys without keys.
    """
    # The Gunicorn master imports this module. The imports in here keep it small, and
    # let a HUP start workers with new code.
    # ruff: noqa: PLC0415
    from app.commands import models_commands
    from app.protocols import predict, v1, v2
    from app.protocols.describe import Description
    from app.recording.recording import Recording
    from app.recording.rollouts import RolloutCounts
    from app.repository.catalog import Catalog
    from app.rims.asgi import AsgiApplication
    from app.rims.wsgi import FlaskCalls, WsgiApplication
    from app.serving.call_metrics import count_calls
    from app.serving.loops import Loops
    from app.serving.predictor import Limits, Predictor
    from app.serving.server import Server
    from app.settings import Settings
    from app.shared_model.remote_loader import RemoteLoader
    from app.tracing.environment import started_spans
    from app.web.flask_app import flask_app
    from app.web.gauges import current
    from app.web.operations import add_operations_routes
    from app.web.page.page import page_blueprint
    from app.web.page.state import state_blueprint
    from app.web.v1_routes import add_v1_routes
    from app.web.v2_routes import add_v2_routes

    settings = settings or Settings.from_environment()
    spans, evidence = started_spans(), _evidence()
    catalog = Catalog(
        settings.default_model,
        run_dir.notes_on(run_dir.DEFAULT_MODEL),
        run_dir.notes_on(run_dir.READY_ONCE),
        needs_all=settings.ready == "all",
    )
    loader: Loader | RemoteLoader
    if settings.model_process == "shared":
        sockets = run_dir.model_sockets()
        loader = RemoteLoader(settings, catalog, _observe(spans), sockets)
    else:
        loader = _loader(settings, catalog, spans, evidence)
    health, rights, observed = (
        _health(settings, catalog),
        _rights(settings),
        _observed(),
    )
    recording = Recording(settings)
    listeners = [
        count_calls,
        observed.errors.ended,
        recording.ended,
        RolloutCounts(evidence).ended,
    ]
    protocols = (predict.PREDICT, v1.PREDICT, v2.INFER)
    predictor = Predictor(
        catalog,
        rights,
        protocols,
        listeners if spans is None else [*listeners, spans.ended],
        Limits(settings.request_timeout_ms, settings.max_body_bytes),
        begin_span=None if spans is None else spans.begin,
    )
    describe = Description(
        catalog, health, loader, timeout_s=settings.request_timeout_ms / 1000
    )
    flask = flask_app(rights, protocols)
    add_v1_routes(flask, describe)
    add_v2_routes(flask, describe, rights, settings)
    add_operations_routes(flask, catalog, health, rights, observed)
    flask.register_blueprint(page_blueprint())
    flask.register_blueprint(state_blueprint(catalog, settings, rights, observed))
    flask.cli.add_command(models_commands(settings))
    flask_calls = FlaskCalls(flask.wsgi_app, rights.origins)
    loops = Loops(predictor, flask_calls.answer, loader)
    server = Server(
        settings=settings,
        flask=flask,
        asgi=AsgiApplication(loops),
        grpc=_grpc_server(settings, loops, predictor, describe, rights),
        loops=loops,
        catalog=catalog,
        loader=loader,
        health=health,
        rights=rights,
        recording=recording,
        sampler=_sampler(settings, observed),
        gauges=partial(current, catalog, observed),
    )
    # Flask's own way to put something in front of it.
    flask.wsgi_app = WsgiApplication(server, predictor, flask_calls)  # type: ignore[method-assign]
    return server


def create_model_process(listener: socket.socket) -> "ModelProcess":
    """Build the process that holds the models of all web workers; `start` starts it.

    Raises:
        SettingsError: a bad value in the environment.
    """
    from app import telemetry
    from app.settings import Settings
    from app.shared_model.model_process import ModelProcess
    from app.shared_model.published_catalog import PublishedCatalog
    from app.tracing.environment import started_spans

    settings = Settings.from_environment()
    kept = run_dir.notes_on(run_dir.DEFAULT_MODEL)
    ready_once = run_dir.notes_on(run_dir.READY_ONCE)
    catalog = PublishedCatalog(settings.default_model, kept, ready_once)
    loader = _loader(settings, catalog, started_spans(), _evidence())
    health = _health(settings, catalog)
    return ModelProcess(catalog, loader, listener, health, telemetry.flush)


def _grpc_server(
    settings: "Settings",
    loops: "Loops",
    predictor: "Predictor",
    describe: "Description",
    rights: "Rights",
) -> "GrpcServer | None":
    if settings.grpc_bind is None:
        return None
    from app.rims.grpc.calls import GrpcCalls
    from app.rims.grpc.server import GrpcServer

    calls = GrpcCalls(loops, predictor, describe, rights)
    return GrpcServer(settings.grpc_bind, calls, settings.max_body_bytes)


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


def _health(settings: "Settings", catalog: "Catalog") -> "Health":
    from app.repository.health import Health

    limit_s = settings.request_timeout_ms / 1000
    return Health(catalog, limit_s, run_dir.notes_on(run_dir.STUCK))


def _rights(settings: "Settings") -> "Rights":
    from app.access.allowed_origins import AllowedOrigins
    from app.access.cross_site import CrossSiteCheck
    from app.access.keys import Keys, KeysOfFile
    from app.access.rights import Rights

    def keys(fixed: tuple[str, ...], setting: str) -> Keys:
        file = getattr(settings, setting)
        if file is None:
            return Keys(fixed)
        return KeysOfFile(setting, file, run_dir.path_of(setting))

    origins = AllowedOrigins(settings.allowed_origins)
    return Rights(
        keys(settings.api_keys, "api_keys_file"),
        keys(settings.admin_keys, "admin_keys_file"),
        CrossSiteCheck(settings.allowed_hosts, origins),
    )


def _observed() -> "Observed":
    from app.web.page.error_log import ErrorLog
    from app.web.page.observed import Observed
    from app.web.page.ring import LineRing
    from app.web.page.sampler import KEPT

    samples = LineRing(run_dir.path_of("samples"), KEPT)
    errors = ErrorLog(run_dir.path_of("errors"))
    notes = run_dir.notes_on(run_dir.PROCESSES)
    return Observed(samples, errors, notes, run_dir.ended)


def _sampler(settings: "Settings", observed: "Observed") -> "Sampler":
    from app.gpus import MemoryReader
    from app.web.page.ring import LineRing
    from app.web.page.sampler import Sampler

    last, lock = LineRing(run_dir.path_of("last_sample"), 1), run_dir.path_of("sampler")
    return Sampler(observed, last, lock, MemoryReader(settings.gpus))
