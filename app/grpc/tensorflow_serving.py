"""TensorFlow Serving's gRPC API: PredictionService and ModelService."""

from functools import partial
from typing import Any

from app.api.describe import Description, check_tensors, servable_not_found
from app.api.environ import traffic_split_key
from app.api.exchange import Exchange, HttpResponse
from app.api.inference.inference import Inference
from app.codec import tensor_proto
from app.codec.rows import Request, find_signature
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.errors import BadInput
from app.grpc.exchange import GrpcExchange
from app.grpc.messages import message_class
from app.grpc.routes import Route
from app.repository.routing import Target
from app.repository.served import ServedModel

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
_SIGNATURES = "signature_def"
_ANY_URL = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
# The methods that are not built, and why.
UNIMPLEMENTED = {
    **dict.fromkeys(
        ("Classify", "Regress", "MultiInference"),
        "models here have signatures of tensorflow/serving/predict alone: use Predict",
    ),
    "HandleReloadConfigRequest": (
        "models are those of the model folder: change its files, or use load and "
        "unload of inference.GRPCInferenceService"
    ),
}


async def predict(
    inference: Inference, max_bytes: int, exchange: Exchange
) -> HttpResponse:
    """Answer a PredictRequest; `max_bytes` bounds one input."""
    assert isinstance(exchange, GrpcExchange)
    message = await exchange.message("tensorflow.serving.PredictRequest")
    target = _target(message, traffic_split_key(exchange.environ))
    filled_bytes = tensor_proto.filled_bytes(message.inputs.values())
    # More are refused when they are read.
    exchange.filled_bytes = min(filled_bytes, max_bytes)
    decode = partial(_decode, message, max_bytes)
    encode = partial(_encode, list(message.output_filter))
    with servable_not_found(target):
        return await inference.answer(exchange, target, (decode, encode))


def _target(message: Any, client: str | None = None) -> Target:
    spec = _spec(message)
    return Target(spec.name, _version(spec), spec.version_label or None, client)


def _spec(message: Any) -> Any:
    """Return the ModelSpec of a request."""
    if not message.HasField("model_spec"):
        raise BadInput("Missing ModelSpec")
    if not message.model_spec.name:
        raise BadInput("model_spec: expected the name of a model")
    return message.model_spec


def _version(spec: Any) -> int | None:
    if not spec.HasField("version"):
        return None
    version: int = spec.version.value
    if version < 0:
        raise BadInput(f"model_spec: version: expected 0 or more, given {version}")
    return version


def _decode(
    message: Any, max_bytes: int, exchange: Exchange, body: bytes, model: ServedModel
) -> Request:
    del body
    check_tensors(model)
    name = message.model_spec.signature_name or DEFAULT_SIGNATURE
    signature = find_signature(model.signatures, name)
    outputs = [spec.name for spec in signature.outputs]
    seen: set[str] = set()
    for wanted in message.output_filter:
        if wanted in seen:
            raise BadInput(f"output_filter: {wanted[:60]!r} is named twice")
        seen.add(wanted)
        if wanted not in outputs:
            raise BadInput(
                f"output_filter: the model has no output {wanted[:60]!r}, it has: "
                f"{', '.join(outputs)}"
            )
    bounds = exchange.bounds(model)
    given = message.inputs
    return Request(name, tensor_proto.read_inputs(given, signature, bounds, max_bytes))


def _encode(
    wanted: list[str],
    exchange: Exchange,
    model: ServedModel,
    decoded: Request,
    outputs: Tensors,
) -> HttpResponse:
    del exchange
    response = message_class("basket.PackedPredictResponse")()
    spec = response.model_spec
    spec.name, spec.signature_name = model.name, decoded.signature_name
    spec.version.value = model.version
    is_whole = model.signatures[decoded.signature_name].takes_whole_tensors
    for name in wanted or outputs:
        array = outputs[name]
        if is_whole:
            array = array.reshape(array.shape[1:])
        tensor_proto.write(response.outputs[name], array)
    return HttpResponse(response.SerializeToString())


def _metadata(describe: Description, message: Any) -> Any:
    fields = list(message.metadata_field)
    if not fields:
        raise BadInput("metadata_field: expected signature_def, given none")
    for field in fields:
        if field != _SIGNATURES:
            raise BadInput(
                f"metadata_field: expected signature_def, given {field[:60]!r}"
            )
    described = describe.signatures(_target(message))
    signatures = described["metadata"][_SIGNATURES]
    return {
        "model_spec": described["model_spec"],
        "metadata": {_SIGNATURES: {"@type": _ANY_URL, **signatures}},
    }


def _status(describe: Description, message: Any) -> Any:
    spec = _spec(message)
    return describe.status(spec.name, _version(spec))


ROUTES = {
    f"{PREDICTION_SERVICE}/GetModelMetadata": Route(
        "tensorflow.serving.GetModelMetadataRequest",
        "tensorflow.serving.GetModelMetadataResponse",
        _metadata,
    ),
    f"{MODEL_SERVICE}/GetModelStatus": Route(
        "tensorflow.serving.GetModelStatusRequest",
        "tensorflow.serving.GetModelStatusResponse",
        _status,
    ),
}
