"""Calls that predict nothing: each asks the HTTP route that answers the same."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from google.protobuf import json_format

from app.api.environ import Environ, complete
from app.api.exchange import JSON, HttpResponse
from app.api.responses import error_response
from app.codec import json_text
from app.errors import UnknownModel
from app.grpc.exchange import environ_of, send
from app.grpc.messages import message_class, parse, pool

# Sends a complete WSGI environment to Flask.
AskFlask = Callable[[Environ], Awaitable[HttpResponse]]
_SHOWN = 80


class Asked(NamedTuple):
    """An HTTP request; the path is not percent-encoded, but for V1."""

    path: str
    method: str = "GET"
    body: Mapping[str, Any] | None = None


class Route(NamedTuple):
    """How a call is asked over HTTP.

    `request` and `response` are names of messages. `read` makes the values of the
    response of the route's JSON and the request. JSON without an error is a response
    whatever its status is, as that of health is; so is that of a status in `statuses`.
    A route that `is_open` needs no key.
    """

    request: str
    response: str
    ask: Callable[[Any], Asked]
    read: Callable[[Any, Any], Any] = lambda reply, _: reply
    statuses: tuple[int, ...] = ()
    is_open: bool = False


async def call(route: Route, ask_flask: AskFlask, sent: bytes, context: Any) -> bytes:
    """Answer one call.

    Raises:
        grpc.aio.AbortError: it failed.
    """
    try:
        response = await _answer(route, ask_flask, sent, context)
    except Exception as error:
        response = error_response(error)
    return await send(context, response)


async def _answer(
    route: Route, ask_flask: AskFlask, sent: bytes, context: Any
) -> HttpResponse:
    request = parse(route.request, sent)
    try:
        response = await ask_flask(_environ(route.ask(request), context))
    except UnknownModel as error:
        response = error_response(error)
    reply = json_text.loads(response.body)
    is_error = isinstance(reply, dict) and "error" in reply
    if is_error and response.status not in route.statuses:
        return response
    message = message_class(route.response)()
    values = route.read(reply, request)
    json_format.ParseDict(
        values, message, ignore_unknown_fields=True, descriptor_pool=pool()
    )
    return HttpResponse(message.SerializeToString(), headers=response.headers)


def model_path(name: str, version: str = "") -> str:
    """Return the path of a model in V2, or of a version.

    Raises:
        UnknownModel: the name or the version can't be one.
    """
    if not name or "/" in name:
        raise UnknownModel(f"there is no model {name[:_SHOWN]!r}")
    if not version:
        return f"/v2/models/{name}"
    if not (version.isascii() and version.isdigit()):
        raise UnknownModel(f"model {name!r} has no version {version[:_SHOWN]!r}")
    return f"/v2/models/{name}/versions/{version}"


def _environ(asked: Asked, context: Any) -> Environ:
    environ = environ_of(asked.path, context)
    body = b"" if asked.body is None else json_text.dumps(asked.body)
    environ |= {
        "REQUEST_METHOD": asked.method,
        "PATH_INFO": asked.path.encode().decode("latin-1"),
        "RAW_URI": quote(asked.path, safe="/:%"),
        "SERVER_PORT": "0",
        "CONTENT_TYPE": JSON,
        "wsgi.url_scheme": "http",
    }
    complete(environ, "HTTP/2", body)
    return environ
