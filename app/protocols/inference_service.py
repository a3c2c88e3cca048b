"""The Open Inference Protocol's gRPC API, with Triton's extensions."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from app.batching.job import Job
from app.call import Call, Reply
from app.codec.v2 import infer_messages
from app.engines.base import Tensors
from app.errors import BadInput, UnknownModel
from app.protocols.describe import Description, check_tensors, no_repository
from app.protocols.grpc_messages import message_class, parse
from app.protocols.methods import Method, Predicting, model_of
from app.protocols.protocol import Protocol, job_of
from app.repository.routing import Target

_PACKAGE = "inference."
SERVICE = f"{_PACKAGE}GRPCInferenceService"
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


def target_of(message: Any) -> Target:
    """Return the model that a ModelInferRequest names.

    Raises:
        UnknownModel: the name or the version can't be one.
    """
    return Target(*model_of(message.model_name, message.model_version))


def _begin(call: Call) -> Job:
    check_tensors(call.model)
    decoded = infer_messages.decode(call.message, call.model.signatures, call.bounds())
    return job_of(call, decoded, len(call.body))


def _finish(call: Call, outputs: Tensors) -> Reply:
    model, response = call.model, message_class(f"{_PACKAGE}ModelInferResponse")()
    decoded = call.decoded
    infer_messages.encode(response, model.name, model.version, decoded, outputs)
    return Reply(response.SerializeToString())


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


def _method(
    name: str,
    answer: Callable[[Description, Any], Any],
    *,
    is_open: bool = False,
    changes: bool = False,
) -> Method:
    return Method(
        path=f"/{SERVICE}/{name}",
        request=f"{_PACKAGE}{name}Request",
        response=f"{_PACKAGE}{name}Response",
        answer=answer,
        is_open=is_open,
        changes=changes,
    )


METHODS = (
    _method("ServerLive", lambda about, _: {"live": about.is_live()}, is_open=True),
    _method("ServerReady", lambda about, _: {"ready": about.is_ready()}, is_open=True),
    _method("ModelReady", _is_ready, is_open=True),
    _method("ServerMetadata", lambda about, _: about.server()),
    _method("ModelMetadata", _metadata),
    _method("ModelConfig", _config),
    _method("ModelStatistics", _statistics),
    _method("RepositoryIndex", _index),
    _method("RepositoryModelLoad", _load, changes=True),
    _method("RepositoryModelUnload", _unload, changes=True),
)
INFER = Predicting(
    path=f"/{SERVICE}/ModelInfer",
    request=f"{_PACKAGE}ModelInferRequest",
    target_of=target_of,
    protocol=Protocol(find=lambda head: None, begin=_begin, finish=_finish),
)
