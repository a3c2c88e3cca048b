"""One replica of the deployment: Basket in a process of Ray's, on one event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from prometheus_client import Metric

from app import create_app, memory, telemetry
from app.errors import ModelLoadError, SettingsError
from app.ray_serve.arguments import settings_of
from app.ray_serve.metrics import RayMetrics
from app.settings import checks

_TRAFFIC = "traffic"
_REQUEST_ID = b"x-request-id"
_Asgi = Callable[..., Coroutine[Any, Any, None]]


class Replica:
    """Serves Basket's ASGI application; Ray calls the methods by their names.

    At its end Ray stops to route to it, waits for its requests, and ends the ASGI
    lifespan, which closes the loader.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Create the application from BASKET_ variables.

        Raises:
            SettingsError: a configuration error; the machine may lack a file.
        """
        settings = settings_of(variables)
        self._timeout_s = settings.request_timeout_ms / 1000
        self._server = create_app(settings)
        self._loader = self._server.loader
        self._catalog = self._server.catalog
        # Models whose traffic differs from their basket.toml.
        self._split: set[str] = set()

    async def __serve_build_asgi_app__(self) -> _Asgi:
        """Load all models, and return the ASGI application.

        Ray routes no request to a replica that is not built. A deploy that is not ready
        ends here, and the replicas before it serve on.

        Raises:
            ModelLoadError: /readyz would be 503; with its reasons.
        """
        memory.freeze()
        self._loader.start()
        await asyncio.to_thread(self._loader.wait)
        if not self._catalog.is_ready():
            missing = self._catalog.not_ready()
            self._loader.close(timeout_s=0)
            raise ModelLoadError(
                "; ".join(f"{name}: {reason}" for name, reason in missing.items())
            )
        self._server.sampler.start()
        RayMetrics(self._collect).start()
        return _without_request_id(self._server.asgi)

    def __del__(self) -> None:
        """Write what capture and request log hold; Ray calls it after the lifespan."""
        # Without an application the constructor has failed.
        if hasattr(self, "_server"):
            self._server.recording.close(timeout_s=1)

    def check_health(self) -> None:
        """Check liveness, as /healthz does: Ray replaces a replica that fails thrice.

        Raises:
            RuntimeError: a model makes no progress while requests wait.
        """
        stuck = self._server.health.stuck()
        if stuck:
            raise RuntimeError(f"no progress while requests wait: {', '.join(stuck)}")

    def _collect(self) -> Iterable[Metric]:
        return telemetry.collect(self._server.gauges())

    async def reconfigure(self, user_config: object) -> None:
        """Move traffic, by model and label: {"traffic": {"digits": {"stable": 90}}}.

        A model that is not named has the traffic of its basket.toml.

        Raises:
            SettingsError: user_config has another form.
            BasketError: a model or label is unknown, or a weight is none.
        """
        weights = weights_in(user_config)
        before, self._split = self._split, set(weights)
        for name in before - weights.keys():
            weights[name] = {}
        for name, by_label in weights.items():
            await asyncio.to_thread(
                self._loader.set_traffic, name, by_label, self._timeout_s
            )


def _without_request_id(asgi: _Asgi) -> _Asgi:
    """Return the application without X-Request-Id in responses.

    Ray's proxy adds the header, with the id that it has given to the request.
    """

    async def application(
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        async def send_rest(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    each
                    for each in message["headers"]
                    if each[0].lower() != _REQUEST_ID
                ]
                message = {**message, "headers": headers}
            await send(message)

        await asgi(scope, receive, send_rest)

    return application


def weights_in(user_config: object) -> dict[str, Mapping[str, Any]]:
    """Return the weights by label of each model that a user_config names.

    Raises:
        SettingsError: it has another form.
    """
    if not isinstance(user_config, Mapping) or user_config.keys() - {_TRAFFIC}:
        raise SettingsError(
            f"user_config = {checks.shown(user_config)}: expected a mapping with the "
            f"one key {_TRAFFIC}"
        )
    weights = user_config.get(_TRAFFIC, {})
    if not isinstance(weights, Mapping) or not all(
        isinstance(by_label, Mapping) for by_label in weights.values()
    ):
        raise SettingsError(
            f"user_config: traffic = {checks.shown(weights)}: expected a mapping of "
            "models to weights by label, such as {digits: {stable: 90, canary: 10}}"
        )
    return dict(weights)
