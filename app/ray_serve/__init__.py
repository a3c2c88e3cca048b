"""Basket as a Ray Serve application: `serve run app.ray_serve:build`.

Ray starts, places, routes to and replaces replicas. Each is one process with a loader,
a catalog and a batcher of its own, and serves Basket's ASGI application.
"""

from typing import Any

from ray import serve
from ray.serve.config import BackpressureConfig
from ray.serve.schema import LoggingConfig

from app.errors import SettingsError
from app.ray_serve.arguments import settings_of, variables_of
from app.ray_serve.replica import Replica

# Beyond the longest request: Ray checks every two seconds whether all have ended.
_DRAIN_MARGIN_S = 5
_RETRY_AFTER_S = 1


def build(args: dict[str, Any]) -> serve.Application:
    """Return the application for `serve run` and `serve deploy`.

    `args` are model_dir or model, default_model, and settings: a mapping of BASKET_
    names. What is set here follows the settings, and `deployments` of a config file
    overrides it.

    Raises:
        SettingsError: a configuration error; the text names the argument or setting.
    """
    try:
        variables = variables_of(args)
        settings = settings_of(variables)
    except SettingsError as error:
        # Ray shows the whole chain of causes, and this text at its end.
        raise SettingsError(str(error)) from None
    deployment = serve.deployment(
        name="Basket",
        # As many as Basket's queue holds. A request that finds no replica below this
        # waits in Ray's router, which tries again after up to 0.5 s: a replica with
        # a short queue would be idle meanwhile. Ray's default of 5 would bound batches.
        max_ongoing_requests=settings.max_rows,
        # In each proxy; Ray's default has no bound.
        max_queued_requests=settings.max_rows,
        backpressure_config=BackpressureConfig(retry_after_s=_RETRY_AFTER_S),
        graceful_shutdown_timeout_s=(
            settings.request_timeout_ms / 1000 + _DRAIN_MARGIN_S
        ),
        # A line for each request would cost more than a small model does.
        logging_config=LoggingConfig(enable_access_log=False),
    )
    return deployment(serve.ingress()(Replica)).bind(variables)
