"""The Open Inference Protocol's gRPC API, with Triton's extensions."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from app.api.describe import Description, check_tensors
from app.api.environ import traffic_split_key
from app.api.exchange import Exchange, HttpResponse
from app.api.inference.inference import Inference
from app.api.v2.routes import no_repository
from app.codec.v2 import infer_messages, tensors
from app.engines.base import Tensors
from app.errors import BadInput, UnknownModel
from app.grpc.exchange import GrpcExchange
from app.grpc.messages import message_class, parse
from app.grpc.routes import Route, model_of
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


async def infer(inference: Inference, exchange: Exchange) -> HttpResponse:
    """Answer a ModelInferRequest."""
    assert isinstance(exchange, GrpcExchange)
    message = await exchange.message(f"{_PACKAGE}ModelInferRequest")
    key = traffic_split_key(exchange.environ)
    target = Target(*model_of(message.model_name, message.model_version), client=key)
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


def _is_ready(describe: Description, message: Any) -> Any:
    # To Triton, too, a model that does not exist is one that is not ready.
    try:
        ready = describe.is_model_ready(*model_of(message.name, message.version))
    except UnknownModel:
        ready = False
    return {"ready": ready}


def _metadata(describe: Description, message: Any) -> Any:
    return describe.metadata(*model_of(message.name, message.version))


def _config(describe: Description, message: Any) -> Any:
    return {"config": describe.config(*model_of(message.name, message.version))}


def _statistics(describe: Description, message: Any) -> Any:
    if not message.name:
        return describe.statistics()
    return describe.statistics(*model_of(message.name, message.version))


def _index(describe: Description, message: Any) -> Any:
    if message.repository_name:
        raise no_repository(message.repository_name)
    return {"models": describe.index(only_ready=message.ready)}


def _changed_model(message: Any) -> str:
    """Return the model of a load or an unload.

    KServe's message has the model's name first, and nothing else.

    Raises:
        Unsupported: it names a repository.
        UnknownModel: it names no model.
    """
    if not message.model_name and not message.parameters:
        return model_of(message.repository_name)[0]
    name, _ = model_of(message.model_name)
    if message.repository_name:
        raise no_repository(message.repository_name)
    return name


def _load(describe: Description, message: Any) -> Any:
    name = _changed_model(message)
    describe.load(name, message.parameters)
    return {"model_name": name, "isLoaded": True}


def _unload(describe: Description, message: Any) -> Any:
    name = _changed_model(message)
    describe.unload(name)
    return {"model_name": name, "isUnloaded": True}


_PACKAGE = "inference."


def _route(
    method: str,
    answer: Callable[[Description, Any], Any],
    *,
    is_open: bool = False,
    changes: bool = False,
) -> tuple[str, Route]:
    names = f"{_PACKAGE}{method}Request", f"{_PACKAGE}{method}Response"
    return f"{SERVICE}/{method}", Route(*names, answer, is_open, changes)


ROUTES = dict(
    (
        _route(
            "ServerLive",
            lambda describe, _: {"live": describe.is_live()},
            is_open=True,
        ),
        _route(
            "ServerReady",
            lambda describe, _: {"ready": describe.is_ready()},
            is_open=True,
        ),
        _route("ModelReady", _is_ready, is_open=True),
        _route("ServerMetadata", lambda describe, _: describe.server()),
        _route("ModelMetadata", _metadata),
        _route("ModelConfig", _config),
        _route("ModelStatistics", _statistics),
        _route("RepositoryIndex", _index),
        _route("RepositoryModelLoad", _load, changes=True),
        _route("RepositoryModelUnload", _unload, changes=True),
    )
)
