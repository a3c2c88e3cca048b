"""The Open Inference Protocol's gRPC API, with Triton's extensions."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from app.api.environ import traffic_split_key
from app.api.exchange import Exchange, HttpResponse
from app.api.inference.inference import Inference
from app.api.v2.metadata import check_tensors
from app.codec.v2 import infer_messages, tensors
from app.engines.base import Tensors
from app.errors import BadInput, UnknownModel
from app.grpc.exchange import GrpcExchange
from app.grpc.messages import message_class, parse
from app.grpc.routes import Asked, Route, model_path
from app.repository.routing import Target
from app.repository.served import ServedModel

SERVICE = "inference.GRPCInferenceService"
_SHARED_MEMORY = "shared memory is not built here: send raw_input_contents"
# The methods that are not built, and why.
UNIMPLEMENTED = {
    **{
        f"{kind}SharedMemory{verb}": _SHARED_MEMORY
        for kind in ("System", "Cuda")
        for verb in ("Status", "Register", "Unregister")
    },
    "TraceSetting": "traces are set by OTEL_* variables at the start",
    "LogSettings": "the log is set by Gunicorn's options at the start",
}
_MAX_VERSION_DIGITS = 19


async def infer(inference: Inference, exchange: Exchange) -> HttpResponse:
    """Answer a ModelInferRequest."""
    assert isinstance(exchange, GrpcExchange)
    message = await exchange.message(f"{_PACKAGE}ModelInferRequest")
    key = traffic_split_key(exchange.environ)
    target = Target(message.model_name, _version(message), client=key)
    decode = partial(_decode, message)
    return await inference.answer(exchange, target, (decode, _encode))


def stream_response(response: bytes) -> bytes:
    """Return a message of the stream with a ModelInferResponse in bytes."""
    message = message_class(f"{_PACKAGE}ModelStreamInferResponse")()
    message.infer_response.MergeFromString(response)
    return _last(message)


def stream_error(text: str, sent: bytes) -> bytes:
    """Return a message of the stream with an error, and the id of the request."""
    message = message_class(f"{_PACKAGE}ModelStreamInferResponse")(error_message=text)
    # What was sent may be no request.
    with suppress(BadInput):
        request = parse(f"{_PACKAGE}ModelInferRequest", sent)
        message.infer_response.id = request.id
    return _last(message)


def _last(message: Any) -> bytes:
    # As Triton marks the last response to a request.
    message.infer_response.parameters["triton_final_response"].bool_param = True
    return bytes(message.SerializeToString())


def _version(message: Any) -> int | None:
    text = message.model_version
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_VERSION_DIGITS:
        raise UnknownModel(
            f"model {message.model_name[:80]!r} has no version {text[:80]!r}"
        )
    return int(text)


def _decode(
    message: Any, exchange: Exchange, body: bytes, model: ServedModel
) -> tensors.Request:
    del body
    check_tensors(model)
    return infer_messages.decode(message, model.signatures, exchange.bounds(model))


def _encode(
    exchange: Exchange, model: ServedModel, decoded: tensors.Request, outputs: Tensors
) -> HttpResponse:
    del exchange
    response = message_class(f"{_PACKAGE}ModelInferResponse")()
    infer_messages.encode(response, model.name, model.version, decoded, outputs)
    return HttpResponse(response.SerializeToString())


def _ask_model(end: str, message: Any) -> Asked:
    return Asked(model_path(message.name, message.version) + end)


def _ask_statistics(message: Any) -> Asked:
    if not message.name:
        return Asked("/v2/models/stats")
    return _ask_model("/stats", message)


def _ask_index(message: Any) -> Asked:
    repository = message.repository_name
    path = (
        f"/v2/repository/{repository}/index" if repository else "/v2/repository/index"
    )
    return Asked(path, "POST", {"ready": message.ready})


def _changed_model(message: Any) -> tuple[str, str]:
    """Return the repository and the model of a load or an unload.

    KServe's message has the model's name first, and nothing else.
    """
    if not message.model_name and not message.parameters:
        return "", message.repository_name
    return message.repository_name, message.model_name


def _ask_change(verb: str, message: Any) -> Asked:
    repository, name = _changed_model(message)
    # The check of a name.
    model_path(name)
    parameters: Mapping[str, Any] = {
        key: _shown(infer_messages.value_of(value))
        for key, value in message.parameters.items()
    }
    place = f"/{repository}" if repository else ""
    path = f"/v2/repository{place}/models/{name}/{verb}"
    return Asked(path, "POST", {"parameters": parameters})


def _shown(value: Any) -> Any:
    """Return a parameter's value in JSON: bytes are the files of a model."""
    return "" if isinstance(value, bytes) else value


def _changed(field: str, reply: Any, message: Any) -> Any:
    del reply
    return {"model_name": _changed_model(message)[1], field: True}


_PACKAGE = "inference."


def _route(method: str, *args: Any, **more: Any) -> tuple[str, Route]:
    names = f"{_PACKAGE}{method}Request", f"{_PACKAGE}{method}Response"
    return f"{SERVICE}/{method}", Route(*names, *args, **more)


ROUTES = dict(
    [
        _route("ServerLive", lambda _: Asked("/v2/health/live"), is_open=True),
        _route("ServerReady", lambda _: Asked("/v2/health/ready"), is_open=True),
        _route(
            "ModelReady",
            partial(_ask_model, "/ready"),
            lambda reply, _: {"ready": reply.get("ready", False)},
            # To Triton, too, a model that does not exist is one that is not ready.
            statuses=(HTTPStatus.NOT_FOUND,),
            is_open=True,
        ),
        _route("ServerMetadata", lambda _: Asked("/v2")),
        _route("ModelMetadata", partial(_ask_model, "")),
        _route(
            "ModelConfig",
            partial(_ask_model, "/config"),
            lambda reply, _: {"config": reply},
        ),
        _route("ModelStatistics", _ask_statistics),
        _route("RepositoryIndex", _ask_index, lambda reply, _: {"models": reply}),
        _route(
            "RepositoryModelLoad",
            partial(_ask_change, "load"),
            partial(_changed, "isLoaded"),
        ),
        _route(
            "RepositoryModelUnload",
            partial(_ask_change, "unload"),
            partial(_changed, "isUnloaded"),
        ),
    ]
)
