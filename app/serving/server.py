"""A process that serves: the parts that others start, ask, watch and close."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.access.rights import Rights
from app.recording.recording import Recording
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.loader import Loader
from app.serving.loop_calls import LoopCalls
from app.serving.loops import Loops
from app.settings import Settings
from app.shared_model.remote_loader import RemoteLoader
from app.telemetry import Gauges

if TYPE_CHECKING:
    from app.web.flask_app import Application
    from app.web.page.sampler import Sampler


@dataclass(frozen=True)
class Server:
    """The parts of one process.

    `flask` is the WSGI application, and `asgi` the ASGI one; `grpc` is None unless
    BASKET_GRPC_BIND is set. `loader.start()` loads models into `catalog`,
    `health.start()` shows stuck models to other processes, `sampler.start()` keeps what
    the page shows, `gauges` are for `telemetry.collect`, and
    `rights.cross_site.listens_at(...)` says where the server listens.
    """

    settings: Settings
    flask: "Application"
    asgi: Any
    grpc: Any
    loops: Loops
    catalog: Catalog
    loader: Loader | RemoteLoader
    health: Health
    rights: Rights
    recording: Recording
    sampler: "Sampler"
    gauges: Callable[[], Gauges]

    def loop_calls(self) -> LoopCalls:
        """Return the calls of the event loop that runs."""
        return self.loops.loop_calls()

    async def close_calls(self) -> None:
        """Have all calls that still wait for a model answered with 503."""
        await self.loops.close_calls()
