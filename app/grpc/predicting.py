"""Calls that predict: the request path of HTTP, with messages for bodies."""

import asyncio
from collections.abc import Callable
from typing import Any

from app.api.application import Application, Handler
from app.api.event_loop import EventLoop
from app.api.exchange import HttpResponse
from app.grpc.exchange import GrpcExchange


class Predicting:
    """Answers calls that predict; all methods are called on the event loop."""

    def __init__(
        self,
        application: Application,
        loop: EventLoop,
        count_request: Callable[[], None],
    ) -> None:
        """Store the application, whose path for inference requests this is.

        `count_request` is called for each request.
        """
        self._application = application
        self._loop = loop
        self._count_request = count_request
        # The number of requests that are not answered yet.
        self.pending = 0

    async def answer(
        self, method: str, handler: Handler, sent: bytes, context: Any
    ) -> HttpResponse:
        """Return the response to one message.

        Raises:
            asyncio.CancelledError: the client canceled the call.
        """
        exchange = GrpcExchange(method, sent, context, self._loop)
        self.pending += 1
        self._count_request()
        try:
            response = await self._application.predict(handler, exchange)
        finally:
            self.pending -= 1
            exchange.close()
        if exchange.is_canceled:
            raise asyncio.CancelledError
        return response
