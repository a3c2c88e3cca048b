"""Every rim gives the same answers: HTTP by four kinds of servers, and gRPC."""

import contextlib
import json
import re

import grpc
import numpy as np
import pytest

from app.protocols.grpc_messages import message_class
from testing.exchange import Connection
from testing.grpc_messages import INFER
from testing.server import free_port
from tests.contract.cases import CASES, INFERRED
from tests.contract.conftest import RIMS, WITH_GRPC, serving_rim

# The gRPC code of an HTTP status, as docs/grpc.md has them.
CODES = {
    200: grpc.StatusCode.OK,
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    501: grpc.StatusCode.UNIMPLEMENTED,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
INFER_PATH = re.compile(r"/v2/models/(\w+)(?:/versions/(\d+))?/infer")


class Rim:
    """A server, and a connection to each of its ports."""

    def __init__(self, server, channel):
        self.http = Connection(server.port)
        self.infer = channel.unary_unary(INFER) if channel else None


@pytest.fixture(scope="module")
def rims(models):
    """Start a rim when it is first asked; end all at the end."""
    started = {}
    with contextlib.ExitStack() as stack:

        def rim(name):
            if name not in started:
                address = f"127.0.0.1:{free_port()}"
                server = stack.enter_context(serving_rim(name, models, address))
                channel = None
                if name in WITH_GRPC:
                    channel = stack.enter_context(grpc.insecure_channel(address))
                started[name] = Rim(server, channel)
                stack.callback(started[name].http.close)
            return started[name]

        yield rim


@pytest.mark.parametrize("name", RIMS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answer_is_the_same_over_each_rim(rims, name, case):
    """Status, body and headers are those of the table."""
    answer = rims(name).http.ask(case.request)
    body = answer.body
    if not isinstance(case.body, bytes):
        body = json.loads(body) if body else None
    assert (answer.status, body) == (case.status, case.body)
    found = {name: answer.headers.get(name) for name in case.headers}
    assert found == dict(case.headers)
    assert answer.headers["x-request-id"]


def _infers(case):
    """Whether a case can be asked of gRPC: one with its tensors in JSON."""
    request = case.request
    has_json = request.body.startswith(b'{"inputs"') and len(request.headers) == 1
    return bool(has_json and INFER_PATH.fullmatch(request.path))


def _message(case):
    """The message that asks the same."""
    sent = json.loads(case.request.body)
    model, version = INFER_PATH.fullmatch(case.request.path).groups()
    message = message_class("inference.ModelInferRequest")(
        model_name=model, model_version=version or "", id=sent.get("id", "")
    )
    for each in sent["inputs"]:
        tensor = message.inputs.add(
            name=each["name"], datatype=each["datatype"], shape=each["shape"]
        )
        values = np.ravel(each["data"]).tolist()
        if each["datatype"] == "FP32":
            tensor.contents.fp32_contents.extend(values)
        else:
            tensor.contents.int_contents.extend(map(int, values))
    for each in sent.get("outputs", ()):
        message.outputs.add(name=each["name"])
    for key, value in sent.get("parameters", {}).items():
        if isinstance(value, bool):
            message.parameters[key].bool_param = value
        else:
            message.parameters[key].int64_param = value
    return message


def _infer(rim, case):
    """Return the code of a gRPC call, and its JSON or the text of its error."""
    metadata = [(key.lower(), value) for key, value in case.request.headers]
    try:
        reply = rim.infer(_message(case).SerializeToString(), 60, metadata)
    except grpc.RpcError as error:
        return error.code(), {"error": error.details()}
    answer = message_class("inference.ModelInferResponse").FromString(reply)
    named = {"id": answer.id} if answer.id else {}
    return grpc.StatusCode.OK, {
        **{"model_name": answer.model_name, "model_version": answer.model_version},
        **named,
        "outputs": [
            {
                "name": output.name,
                "datatype": output.datatype,
                "shape": list(output.shape),
                "data": np.frombuffer(content, np.float32).tolist(),
            }
            for output, content in zip(
                answer.outputs, answer.raw_output_contents, strict=True
            )
        ],
    }


@pytest.mark.parametrize("name", WITH_GRPC)
@pytest.mark.parametrize(
    "case", [each for each in CASES if _infers(each)], ids=lambda case: case.name
)
def test_grpc_infers_as_v2_does_over_http(rims, name, case):
    """The outputs are the same, and so is the text of an error."""
    code, body = _infer(rims(name), case)
    assert code is CODES[case.status]
    # Over HTTP the outputs may be binary.
    expected = INFERRED if isinstance(case.body, bytes) else case.body
    assert body == expected
