"""The Open Inference Protocol's gRPC API, with Triton's extensions."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from app.call import Call, Reply
from app.codec.v2 import infer_messages, tensors
from app.engines.base import Tensors
from app.errors import BadInput, UnknownModel
from app.protocols.describe import Description, no_repository
from app.protocols.grpc_messages import message_class, parse
from app.protocols.methods import Method, model_of
from app.protocols.protocol import Protocol, begins_with
from app.repository.routing import Target

SERVICE = "inference.GRPCInferenceService"
_SHARED_MEMORY = "shared memory is not built here: send raw_input_contents"


def _decode(call: Call, body: bytes) -> tensors.TensorsRequest:
    del body
    model = call.model
    return infer_messages.decode(call.message, model.signatures, call.bounds())


def _finish(call: Call, outputs: Tensors) -> Reply:
    model, response = call.model, message_class("inference.ModelInferResponse")()
    decoded = call.decoded
    infer_messages.encode(response, model.name, model.version, decoded, outputs)
    return Reply(response.SerializeToString())


def stream_message(reply: Reply, error: str, sent: bytes) -> bytes:
    """Return the message of the stream for a reply to what was sent.

    An `error`, "" if there is none, has the id of its request.
    """
    message = message_class("inference.ModelStreamInferResponse")()
    response = message.infer_response
    if error:
        message.error_message = error
        # What was sent may be no request.
        with suppress(BadInput):
            response.id = parse(INFER.request, sent).id
    else:
        response.MergeFromString(reply.body)
    # As Triton marks the last response to a request.
    response.parameters["triton_final_response"].bool_param = True
    return bytes(message.SerializeToString())


def _named(message: Any) -> tuple[str, int | None]:
    """Return the model and version that a message asks about."""
    return model_of(message.name, message.version)


def _is_ready(describe: Description, message: Any) -> Any:
    # To Triton, too, a model that does not exist is one that is not ready.
    try:
        return {"ready": describe.is_model_ready(*_named(message))}
    except UnknownModel:
        return {"ready": False}


def _statistics(describe: Description, message: Any) -> Any:
    return describe.statistics(*(_named(message) if message.name else ()))


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


INFER = Method(
    SERVICE,
    "ModelInfer",
    target_of=lambda sent: Target(*model_of(sent.model_name, sent.model_version)),
    protocol=Protocol(begin=begins_with(_decode, takes_tensors=True), finish=_finish),
)
STREAM = replace(INFER, name="ModelStreamInfer", message="ModelInfer")
METHODS = (
    INFER,
    STREAM,
    Method(
        SERVICE, "ServerLive", lambda about, _: {"live": about.is_live()}, is_open=True
    ),
    Method(
        SERVICE,
        "ServerReady",
        lambda about, _: {"ready": about.is_ready()},
        is_open=True,
    ),
    Method(SERVICE, "ModelReady", _is_ready, is_open=True),
    Method(SERVICE, "ServerMetadata", lambda about, _: about.server()),
    Method(SERVICE, "ModelMetadata", lambda about, sent: about.metadata(*_named(sent))),
    Method(
        SERVICE,
        "ModelConfig",
        lambda about, sent: {"config": about.config(*_named(sent))},
    ),
    Method(SERVICE, "ModelStatistics", _statistics),
    Method(SERVICE, "RepositoryIndex", _index),
    Method(SERVICE, "RepositoryModelLoad", _load, changes=True),
    Method(SERVICE, "RepositoryModelUnload", _unload, changes=True),
    *(
        Method(SERVICE, f"{kind}SharedMemory{verb}", unsupported=_SHARED_MEMORY)
        for kind in ("System", "Cuda")
        for verb in ("Status", "Register", "Unregister")
    ),
    Method(
        SERVICE,
        "TraceSetting",
        unsupported="traces are set by OTEL_* variables at the start",
    ),
    Method(
        SERVICE,
        "LogSettings",
        unsupported="the log is set by Gunicorn's options at the start",
    ),
)
