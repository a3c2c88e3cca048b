"""Calls that predict nothing: they describe models, and change what is served."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from google.protobuf import json_format

from app.api.access.rights import Rights
from app.api.describe import Description
from app.api.environ import REQUEST_ID, request_id
from app.api.exchange import HttpResponse
from app.api.responses import error_response
from app.errors import UnknownModel
from app.grpc.exchange import environ_of_metadata, send
from app.grpc.messages import message_class, parse, pool

_SHOWN = 80
# Of a version, which is an int64.
_MAX_DIGITS = 19


class Route(NamedTuple):
    """A method: the names of its messages, and what answers it.

    `answer` returns the values of the response. One that `is_open` needs no key, and
    one that `changes` the server takes an admin key.
    """

    request: str
    response: str
    answer: Callable[[Description, Any], Any]
    is_open: bool = False
    changes: bool = False


class Asked(NamedTuple):
    """What answers calls: descriptions, rights, and threads of the ASGI application."""

    describe: Description
    rights: Rights
    in_thread: Callable[..., Awaitable[HttpResponse]]


async def call(route: Route, asked: Asked, sent: bytes, context: Any) -> bytes:
    """Answer one call.

    Raises:
        grpc.aio.AbortError: it failed.
    """
    environ = environ_of_metadata(context.invocation_metadata())

    def answer() -> HttpResponse:
        try:
            if route.changes:
                asked.rights.check_admin(environ)
            values = route.answer(asked.describe, parse(route.request, sent))
            message = message_class(route.response)()
            json_format.ParseDict(
                values, message, ignore_unknown_fields=True, descriptor_pool=pool()
            )
            response = HttpResponse(message.SerializeToString())
        except Exception as error:
            response = error_response(error)
        response.headers.append((REQUEST_ID, request_id(environ)))
        return response

    response = await asked.in_thread(answer, reads_only=not route.changes)
    return await send(context, response)


def model_of(name: str, version: str = "") -> tuple[str, int | None]:
    """Return a model's name and version as the catalog has them.

    Raises:
        UnknownModel: the name or the version can't be one.
    """
    if not name or "/" in name:
        raise UnknownModel(f"there is no model {name[:_SHOWN]!r}")
    if not version:
        return name, None
    if not (version.isascii() and version.isdigit() and len(version) <= _MAX_DIGITS):
        raise UnknownModel(f"model {name!r} has no version {version[:_SHOWN]!r}")
    return name, int(version)
