"""Messages of gRPC calls that predict, and the rows in their responses."""

from typing import Any

import numpy as np

from app.protocols.grpc_messages import message_class

INFER = "/inference.GRPCInferenceService/ModelInfer"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
# The methods that predict.
METHODS = (INFER, PREDICT)


def request_of(
    method: str,
    array: Any,
    model: str = "m",
    name: str = "input",
    **parameters: int,
) -> bytes:
    """Return the message of a call with this input; `parameters` are ModelInfer's."""
    if method == INFER:
        message = message_class("inference.ModelInferRequest")(model_name=model)
        message.inputs.add(name=name, datatype="FP32", shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
        for key, value in parameters.items():
            message.parameters[key].int64_param = value
    else:
        message = message_class("tensorflow.serving.PredictRequest")()
        message.model_spec.name = model
        given = message.inputs[name]
        given.dtype, given.tensor_content = 1, array.tobytes()
        for size in array.shape:
            given.tensor_shape.dim.add(size=size)
    return bytes(message.SerializeToString())


def output_of(method: str, response: bytes) -> Any:
    """Return the rows of a response, by the method that gave it."""
    if method == INFER:
        answer = message_class("inference.ModelInferResponse").FromString(response)
        flat = np.frombuffer(answer.raw_output_contents[0], np.float32)
        return flat.reshape(answer.outputs[0].shape)
    answer = message_class("tensorflow.serving.PredictResponse").FromString(response)
    made = answer.outputs["output"]
    sizes = [dim.size for dim in made.tensor_shape.dim]
    return np.array(made.float_val, np.float32).reshape(sizes)
