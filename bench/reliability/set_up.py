"""A real Gunicorn with one simulated model, and a client beside it."""

import asyncio
import contextlib
import resource
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from testing.open_loop import Client, client_of
from testing.server import Server, serving, simulated_models

GOOD = "wsgi:app"
# Of a Gunicorn that more come to than it can serve.
CROWDED = ("--threads=20", "--worker-connections=4096")
_WIDTH = 4
_T = TypeVar("_T")


def device(base_ms: float, per_row_ms: float, **more: Any) -> dict[str, Any]:
    """A simulated.json that echoes rows of four values."""
    shape = {"input_shape": [_WIDTH], "outputs": _WIDTH}
    return {"base_ms": base_ms, "per_row_ms": per_row_ms, **shape, **more}


@contextlib.contextmanager
def simulated(
    simulation: dict[str, Any], *args: str, app: str = GOOD, **settings: str
) -> Iterator[Server]:
    """Serve a simulated model under the name m."""
    with tempfile.TemporaryDirectory() as folder:
        models = simulated_models(Path(folder), m=simulation)
        with serving(
            *args, app=app, own_session=True, model_dir=models, **settings
        ) as server:
            yield server


def raise_descriptor_limit() -> None:
    """Allow this process, and servers that it starts, all descriptors they may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def with_client(server: Server, work: Callable[[Client], Awaitable[_T]]) -> _T:
    """Run what needs a client, from beginning to end."""

    async def run() -> _T:
        async with client_of(server.port) as client:
            return await work(client)

    return asyncio.run(run())
