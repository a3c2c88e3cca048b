"""Finds the method of a call, and refuses a call without a key before its message.

gRPC asks for the method first, and then receives the message for it. The handlers of
refusals take a stream of messages, of which they read none.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc

from app.api.access.rights import Rights
from app.api.environ import REQUEST_ID, request_id
from app.api.exchange import Exchange, HttpResponse
from app.api.responses import error_response
from app.errors import BasketError
from app.grpc.exchange import abort, environ_of, environ_of_metadata, send
from app.grpc.predicting import Predicting

Unary = Callable[[bytes, Any], Awaitable[bytes]]


class Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The handlers of all methods, by their paths."""

    def __init__(self, rights: Rights, predicting: Predicting) -> None:
        """Store the parts."""
        self._rights = rights
        self._predicting = predicting
        self._handlers: dict[str, Any] = {}
        # Paths of the methods that need no key, and of those that predict.
        self._open: set[str] = set()
        self._predicts: set[str] = set()

    def add(self, method: str, function: Unary, *, is_open: bool = False) -> None:
        """Add a method that predicts nothing."""
        path = f"/{method}"
        self._handlers[path] = grpc.unary_unary_rpc_method_handler(function)
        if is_open:
            self._open.add(path)

    def add_unimplemented(self, method: str, why: str) -> None:
        """Add a method that is refused with a text, whoever calls it."""
        refuse = partial(_refuse_unimplemented, why)
        self._handlers[f"/{method}"] = grpc.stream_unary_rpc_method_handler(refuse)
        self._open.add(f"/{method}")

    def add_predicting(self, method: str, handler: Any) -> None:
        """Add a method that predicts, with gRPC's handler of it."""
        self._handlers[f"/{method}"] = handler
        self._predicts.add(f"/{method}")

    def service(self, handler_call_details: Any) -> Any:
        """Return gRPC's handler of a call, or None if there is no such method."""
        path = handler_call_details.method
        handler = self._handlers.get(path)
        if handler is None or path in self._open:
            return handler
        try:
            metadata = handler_call_details.invocation_metadata
            self._rights.check(environ_of_metadata(metadata))
        except BasketError as error:
            refuse = partial(self._refuse, path, error)
            return grpc.stream_unary_rpc_method_handler(refuse)
        return handler

    async def _refuse(
        self, path: str, error: BasketError, messages: Any, context: Any
    ) -> bytes:
        """End a call; one that would predict is counted as over HTTP."""
        del messages
        if path in self._predicts:

            async def refused(exchange: Exchange) -> HttpResponse:
                raise error

            response = await self._predicting.answer(path, refused, b"", context)
        else:
            response = error_response(error)
            name = request_id(environ_of(path, context))
            response.headers.append((REQUEST_ID, name))
        return await send(context, response)


async def _refuse_unimplemented(why: str, messages: Any, context: Any) -> bytes:
    del messages
    await abort(context, 501, why)
