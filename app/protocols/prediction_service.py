"""TensorFlow Serving's gRPC API: PredictionService and ModelService."""

from typing import Any

from app.call import Call, Reply
from app.codec import tensor_proto
from app.codec.rows import Request, find_signature
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.errors import BadInput
from app.protocols.describe import Description, explained
from app.protocols.grpc_messages import message_class
from app.protocols.methods import Method
from app.protocols.protocol import Protocol, begins_with
from app.repository.routing import Target

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
_SIGNATURES = "signature_def"
_ANY_URL = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
_PREDICT_ONLY = (
    "models here have signatures of tensorflow/serving/predict alone: use Predict"
)
_RELOAD = (
    "models are those of the model folder: change its files, or use load and unload "
    "of inference.GRPCInferenceService"
)


def target_of(message: Any) -> Target:
    """Return the model that a request names.

    Raises:
        BadInput: it names none.
    """
    spec = _spec(message)
    return Target(spec.name, _version(spec), spec.version_label or None)


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


def _decode(call: Call, body: bytes) -> Request:
    del body
    model, message = call.model, call.message
    name = message.model_spec.signature_name or DEFAULT_SIGNATURE
    signature = find_signature(model.signatures, name)
    outputs = [spec.name for spec in signature.outputs]
    wanted: list[str] = []
    for output in message.output_filter:
        if output in wanted:
            raise BadInput(f"output_filter: {output[:60]!r} is named twice")
        if output not in outputs:
            raise BadInput(
                f"output_filter: the model has no output {output[:60]!r}, it has: "
                f"{', '.join(outputs)}"
            )
        wanted.append(output)
    max_bytes = call.asks.max_body_bytes
    inputs = tensor_proto.read_inputs(
        message.inputs, signature, call.bounds(), max_bytes
    )
    # What the answer is to have is in the message, which is released with the body.
    decoded = FilteredRequest(name, inputs)
    decoded.wanted = wanted
    return decoded


class FilteredRequest(Request):
    """A request that may name the outputs that it wants; none: all of them."""

    wanted: list[str]


def _finish(call: Call, outputs: Tensors) -> Reply:
    model, decoded = call.model, call.decoded
    response = message_class("basket.PackedPredictResponse")()
    spec = response.model_spec
    spec.name, spec.signature_name = model.name, decoded.signature_name
    spec.version.value = model.version
    is_whole = model.signatures[decoded.signature_name].takes_whole_tensors
    for name in decoded.wanted or outputs:
        array = outputs[name]
        if is_whole:
            array = array.reshape(array.shape[1:])
        tensor_proto.write(response.outputs[name], array)
    return Reply(response.SerializeToString())


def _metadata(describe: Description, message: Any) -> Any:
    fields = list(message.metadata_field)
    if not fields:
        raise BadInput("metadata_field: expected signature_def, given none")
    for field in fields:
        if field != _SIGNATURES:
            raise BadInput(
                f"metadata_field: expected signature_def, given {field[:60]!r}"
            )
    described = describe.signatures(target_of(message))
    signatures = described["metadata"][_SIGNATURES]
    return {
        "model_spec": described["model_spec"],
        "metadata": {_SIGNATURES: {"@type": _ANY_URL, **signatures}},
    }


def _status(describe: Description, message: Any) -> Any:
    spec = _spec(message)
    return describe.status(spec.name, _version(spec))


METHODS = (
    Method(
        PREDICTION_SERVICE,
        "Predict",
        target_of=target_of,
        filled_bytes=lambda sent: tensor_proto.filled_bytes(sent.inputs.values()),
        protocol=Protocol(
            begin=begins_with(_decode, takes_tensors=True),
            finish=_finish,
            explain=explained,
        ),
    ),
    Method(PREDICTION_SERVICE, "GetModelMetadata", _metadata),
    Method(MODEL_SERVICE, "GetModelStatus", _status),
    Method(PREDICTION_SERVICE, "Classify", unsupported=_PREDICT_ONLY),
    Method(PREDICTION_SERVICE, "Regress", unsupported=_PREDICT_ONLY),
    Method(PREDICTION_SERVICE, "MultiInference", unsupported=_PREDICT_ONLY),
    Method(MODEL_SERVICE, "HandleReloadConfigRequest", unsupported=_RELOAD),
)
