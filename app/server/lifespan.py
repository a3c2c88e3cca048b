"""Startup and shutdown of an ASGI application.

https://asgi.readthedocs.io/en/latest/specs/lifespan.html
"""

import asyncio
from typing import Any


class Lifespan:
    """Runs the lifespan protocol: one startup, one shutdown."""

    def __init__(self, app: Any, log: Any) -> None:
        """Store the application, which may not support it."""
        self._app = app
        self._log = log
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._replied = asyncio.Event()
        self._failure = ""
        self._task: asyncio.Task[None] | None = None
        self._shut_down = False

    async def startup(self) -> None:
        """Wait until the application has started.

        Raises:
            RuntimeError: it reports that its startup failed.
        """
        self._task = asyncio.get_running_loop().create_task(self._run())
        await self._send_event("lifespan.startup")
        if self._failure:
            raise RuntimeError(f"the application does not start: {self._failure}")

    async def shutdown(self) -> None:
        """Wait until the application has shut down; later calls do nothing."""
        if not self._shut_down:
            self._shut_down = True
            await self._send_event("lifespan.shutdown")

    async def _send_event(self, event: str) -> None:
        if self._task is None or self._task.done():
            return
        self._replied.clear()
        self._events.put_nowait({"type": event})
        answer = asyncio.ensure_future(self._replied.wait())
        await asyncio.wait((answer, self._task), return_when=asyncio.FIRST_COMPLETED)
        answer.cancel()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}}
        try:
            await self._app(scope, self._events.get, self._send)
        except Exception as error:  # an application without lifespan raises
            self._log.debug("the application has no lifespan: %r", error)

    async def _send(self, event: dict[str, Any]) -> None:
        if event["type"] == "lifespan.startup.failed":
            self._failure = event.get("message", "") or "no reason given"
        self._replied.set()
