"""The contract of each route: requests, and the answers that every rim gives.

A case has a name, the request, and what its answer has: the status, the whole body, and
headers. All rims have the models and keys of `site`; a request has the client's key
unless it says another one.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testing.exchange import Request
from testing.pictures import form, saved
from tests.contract.site import ADMIN_KEY, CLIENT_KEY, LIMIT_BYTES
from tests.support.exchanges import npy_of
from tests.support.tensors import body_of

JSON = ("Content-Type", "application/json")
NPY = ("Content-Type", "application/x-npy")
PNG = ("Content-Type", "image/png")


@dataclass(frozen=True)
class Case:
    """A request, and its answer: `body` is JSON, or bytes of another type."""

    name: str
    request: Request
    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


CASES: list[Case] = []


def ask(  # noqa: PLR0913 # a row of a table
    name: str,
    method: str,
    path: str,
    sent: Any = b"",
    *headers: tuple[str, str],
    key: str = CLIENT_KEY,
    status: int = 200,
    gives: Any = None,
    error: str = "",
    has: Mapping[str, str] | None = None,
) -> None:
    """Add a case: what is sent, the status, and the body that it gives or its error."""
    body = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    own = [*headers, ("Authorization", f"Bearer {key}")] if key else headers
    request = Request(method, path, tuple(own), body)
    answer = {"error": error} if error else gives
    CASES.append(Case(name, request, status, answer, has or {}))


X = np.float32([[1, 2, 3], [4, 5, 6]])
Y = [[1.0, 2.0], [4.0, 5.0]]
ROWS = {"instances": X.tolist()}
PREDICTIONS = {"predictions": Y}
UNAUTHORIZED: Any = {
    "status": 401,
    "error": "this server wants Authorization: Bearer KEY",
    "has": {"www-authenticate": "Bearer"},
}
NO_MODEL = "no model 'none'; there are: echo, late, pictures, slow, words"

# POST /predict: rows in, predictions out.

ask("rows", "POST", "/predict", ROWS, JSON, gives=PREDICTIONS)
ask(
    "version, batch and id are headers",
    *("POST", "/predict", ROWS, ("X-Request-Id", "till-7")),
    gives=PREDICTIONS,
    has={"x-model-version": "7", "x-batch-size": "2", "x-request-id": "till-7"},
)
ask("rows without a type", "POST", "/predict", ROWS, gives=PREDICTIONS)
ask(
    "rows as text",
    *("POST", "/predict", ROWS, ("Content-Type", "text/plain")),
    gives=PREDICTIONS,
)
ask(
    "columns",
    *("POST", "/predict", {"inputs": {"input": X.tolist()}}),
    gives={"outputs": Y},
)
ask(
    "rows by name",
    *("POST", "/predict", {"instances": [{"input": [1, 2, 3]}]}),
    gives={"predictions": Y[:1]},
)
ask(
    "signature by name",
    *("POST", "/predict", {"signature_name": "serving_default", **ROWS}),
    gives=PREDICTIONS,
)
ask("rows as .npy", "POST", "/predict", npy_of(X), NPY, gives=PREDICTIONS)
ask(
    ".npy in and out",
    *("POST", "/predict", npy_of(X), NPY, ("Accept", "application/x-npy")),
    gives=npy_of(np.float32(Y)),
    has={"content-type": "application/x-npy"},
)
ask(
    "gzip",
    *("POST", "/predict", gzip.compress(json.dumps(ROWS).encode())),
    ("Content-Encoding", "gzip"),
    gives=PREDICTIONS,
)
ask(
    "model in the query",
    *("POST", "/predict?model=echo", ROWS),
    gives=PREDICTIONS,
)
ask(
    "behind a base URL that ends in a slash",
    *("POST", "//predict", ROWS),
    gives=PREDICTIONS,
)
ask(
    "own timeout",
    *("POST", "/predict", ROWS, ("X-Request-Timeout-Ms", "20000")),
    gives=PREDICTIONS,
)
ask("admin's key", "POST", "/predict", ROWS, key=ADMIN_KEY, gives=PREDICTIONS)

# POST /predict: what is refused.

for _name, _sent, _error in (
    ("no body", b"", "JSON Parse error: The document is empty"),
    (
        "no JSON",
        b"{",
        "JSON Parse error: Expecting property name enclosed in double quotes at "
        "offset: 1",
    ),
    ("a list", b"[]", 'expected a JSON object: {"instances": [row, ...]}'),
    ("no known key", {"rows": []}, "Missing 'inputs' or 'instances' key"),
    (
        "no rows",
        {"instances": []},
        "'instances' must be a list/array with at least one row",
    ),
    (
        "a short row",
        {"instances": [[1, 2, 3], [1, 2]]},
        "instances[1]: expected 3 values, given 2; a row has shape (3,): [[1, 2, 3]]",
    ),
    (
        "a text as a number",
        {"instances": [[1, 2, "3"]]},
        "instances[0][2]: expected float32, given the string '3'",
    ),
    (
        "null as a number",
        {"instances": [[1, 2, None]]},
        "instances[0][2]: expected float32, given null",
    ),
    (
        "an unknown signature",
        {"signature_name": "none", **ROWS},
        'Serving signature name: "none" not found in signature def',
    ),
):
    ask(_name, "POST", "/predict", _sent, status=400, error=_error)
ask(
    "no .npy",
    *("POST", "/predict", b"npy", NPY),
    status=400,
    error="not a .npy array: expected \\x93NUMPY as its first bytes",
)
ask(
    "rows of another shape as .npy",
    *("POST", "/predict", npy_of(X[:, :2]), NPY),
    status=400,
    error="rows[0]: expected shape (3,), given (2,)",
)
ask(
    "unknown encoding",
    *("POST", "/predict", ROWS, ("Content-Encoding", "br")),
    status=501,
    error="Content-Encoding: 'br' is not known here, but gzip and deflate are",
    has={"accept-encoding": "gzip, deflate"},
)
ask(
    "no gzip",
    *("POST", "/predict", b"gzip", ("Content-Encoding", "gzip")),
    status=400,
    error="the body is not gzip: Error -3 while decompressing data: incorrect header "
    "check",
)
ask(
    "no number of ms",
    *("POST", "/predict", ROWS, ("X-Request-Timeout-Ms", "soon")),
    status=400,
    error="X-Request-Timeout-Ms: expected a whole number of ms, 1 or more, given "
    "'soon'",
)
ask("unknown model", "POST", "/predict?model=none", ROWS, status=404, error=NO_MODEL)
ask(
    "late",
    *("POST", "/predict?model=late", {"instances": [[1, 2, 3]]}),
    ("X-Request-Timeout-Ms", "200"),
    status=504,
    error="no answer was ready before the request's deadline",
)
ask(
    "a large body",
    *("POST", "/predict", b" " * (LIMIT_BYTES + 1)),
    status=413,
    error=f"the body is larger than {LIMIT_BYTES} bytes",
)
ask(
    "many rows",
    *("POST", "/predict", {"instances": [[1, 2, 3]] * 1025}),
    status=413,
    error="more than 1024 rows in one request, and the queue holds 1024: send at most "
    "1024 at a time, or raise BASKET_MAX_ENQUEUED_BATCHES",
)
ask(
    "GET of predict",
    *("GET", "/predict"),
    status=405,
    error="/predict takes no GET, but OPTIONS, POST",
)
ask("no key", "POST", "/predict", ROWS, key="", **UNAUTHORIZED)
ask("another key", "POST", "/predict", ROWS, key="other", **UNAUTHORIZED)

# Pictures.

PIXELS = np.zeros((2, 2, 3), np.uint8)
PIXELS[0, 0] = 9, 200, 30
PICTURE = saved(PIXELS, "PNG")
FORM, FORM_HEADERS = form(PICTURE)
PICTURES = "/predict?model=pictures"
GREEN = {"class_id": "1", "class_name": "green", "score": 200.0}
BLUE = {"class_id": "2", "class_name": "blue", "score": 30.0}

ask("a picture", "POST", PICTURES, PICTURE, PNG, gives=GREEN)
ask("a picture without a type", "POST", PICTURES, PICTURE, gives=GREEN)
ask("a picture in a form", "POST", PICTURES, FORM, *FORM_HEADERS.items(), gives=GREEN)
ask(
    "the best two classes",
    *("POST", f"{PICTURES}&top=2", PICTURE),
    gives=[GREEN, BLUE],
)
ask(
    "the best no classes",
    *("POST", f"{PICTURES}&top=0", PICTURE),
    status=400,
    error="top: expected a whole number, 1 or more, given '0'",
)
ask(
    "pixels as rows",
    *("POST", PICTURES, {"instances": [PIXELS.tolist()]}),
    gives={"predictions": [[9.0, 200.0, 30.0]]},
)
ask(
    "a picture for a model of rows",
    *("POST", "/predict", PICTURE, PNG),
    status=400,
    error="model 'echo' takes no pictures: its basket.toml has no [image] with size, "
    "mode and scale",
)

# The user's own code.

ask(
    "service.py",
    *("POST", "/predict?model=words"),
    {"instances": [{"text": "one"}, {"text": "a b c"}]},
    gives={"predictions": [{"words": 1}, {"words": 3}]},
)
ask(
    "a row that service.py refuses",
    *("POST", "/predict?model=words", {"instances": [{"text": "one"}, {}]}),
    status=400,
    error="instances[1]: expected a text",
)
ask(
    "service.py by V1",
    *("POST", "/v1/models/words:predict", {"instances": [{"text": "a b"}]}),
    gives={"predictions": [{"words": 2}]},
)

# TensorFlow Serving's and KServe's V1.

V1 = "/v1/models/echo"
VERSIONS = [
    {
        "version": version,
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    for version in ("7", "3")
]

ask("V1 rows", "POST", f"{V1}:predict", ROWS, gives=PREDICTIONS)
ask("V1 columns", "POST", f"{V1}:predict", {"inputs": X.tolist()}, gives={"outputs": Y})
for _place in ("versions/3", "labels/old"):
    ask(
        f"V1 {_place}",
        *("POST", f"{V1}/{_place}:predict", ROWS),
        gives=PREDICTIONS,
        has={"x-model-version": "3"},
    )
for _path, _status, _error in (
    ("/v1/models/none:predict", 404, "Servable not found for request: Latest(none)"),
    (
        f"{V1}/versions/4:predict",
        404,
        "Servable not found for request: Specific(echo, 4)",
    ),
    (f"{V1}/labels/none:predict", 400, "Unrecognized servable version label: none"),
    (
        f"{V1}:classify",
        400,
        "Expected classification signature method_name to be "
        "tensorflow/serving/classify. Was: tensorflow/serving/predict",
    ),
    (f"{V1}:explain", 501, "no model here has an explainer"),
    (f"{V1}:guess", 400, f"Malformed request: POST {V1}:guess"),
):
    ask(_path, "POST", _path, ROWS, status=_status, error=_error)
ask(
    "V1 status",
    *("GET", V1),
    gives={"name": "echo", "ready": True, "model_version_status": VERSIONS},
)
ask(
    "V1 status of a version",
    *("GET", f"{V1}/versions/3"),
    gives={"name": "echo", "ready": True, "model_version_status": VERSIONS[1:]},
)
ask(
    "V1 status of no model",
    *("GET", "/v1/models/none"),
    status=404,
    error="Could not find any versions of model none",
)
ask(
    "V1 metadata",
    *("GET", f"{V1}/metadata"),
    gives={
        "model_spec": {"name": "echo", "signature_name": "", "version": "7"},
        "metadata": {
            "signature_def": {
                "signature_def": {
                    "serving_default": {
                        kind: {
                            name: {
                                "dtype": "DT_FLOAT",
                                "tensor_shape": {
                                    "dim": [
                                        {"size": "-1", "name": ""},
                                        {"size": size, "name": ""},
                                    ],
                                    "unknown_rank": False,
                                },
                                "name": f"serving_default_{name}:0",
                            }
                        }
                        for kind, name, size in (
                            ("inputs", "input", "3"),
                            ("outputs", "output", "2"),
                        )
                    }
                    | {"method_name": "tensorflow/serving/predict"}
                }
            }
        },
    },
)
ask(
    "V1 models",
    *("GET", "/v1/models"),
    gives={"models": ["echo", "late", "pictures", "slow", "words"]},
)
ask(
    "V1 DELETE",
    *("DELETE", V1),
    status=400,
    error=f"Malformed request: DELETE {V1}",
)
ask("V1 without a key", "POST", f"{V1}:predict", ROWS, key="", **UNAUTHORIZED)

# The Open Inference Protocol, V2. Those that infer are asked over gRPC, too.

V2 = "/v2/models/echo"
INFER = f"{V2}/infer"
INPUT = {"name": "input", "datatype": "FP32", "shape": [2, 3], "data": X.tolist()}
OUTPUT = {
    "name": "output",
    "datatype": "FP32",
    "shape": [2, 2],
    "data": np.ravel(Y).tolist(),
}
INFERRED = {"model_name": "echo", "model_version": "7", "outputs": [OUTPUT]}
BINARY, JSON_BYTES = body_of({"input": X}, binary=True)
BINARY_OUTPUT = json.dumps(
    {
        **INFERRED,
        "outputs": [
            {
                **{key: OUTPUT[key] for key in ("name", "datatype", "shape")},
                "parameters": {"binary_data_size": 16},
            }
        ],
    },
    separators=(",", ":"),
).encode()
AS_BINARY: Any = {
    "gives": BINARY_OUTPUT + np.float32(Y).tobytes(),
    "has": {
        "content-type": "application/octet-stream",
        "inference-header-content-length": str(len(BINARY_OUTPUT)),
    },
}

ask("V2", "POST", INFER, {"inputs": [INPUT]}, gives=INFERRED)
ask(
    "V2 with an id",
    *("POST", INFER, {"inputs": [INPUT], "id": "till-7"}),
    gives={**INFERRED, "id": "till-7"},
)
ask(
    "V2 flat data",
    *("POST", INFER, {"inputs": [{**INPUT, "data": X.ravel().tolist()}]}),
    gives=INFERRED,
)
ask(
    "V2 of a version",
    *("POST", f"{V2}/versions/3/infer", {"inputs": [INPUT]}),
    gives={**INFERRED, "model_version": "3"},
)
ask(
    "V2 outputs by name",
    *("POST", INFER, {"inputs": [INPUT], "outputs": [{"name": "output"}]}),
    gives=INFERRED,
)
ask(
    "V2 binary",
    *("POST", INFER, BINARY, ("Inference-Header-Content-Length", str(JSON_BYTES))),
    **AS_BINARY,
)
ask(
    "V2 binary outputs",
    *("POST", INFER),
    {"inputs": [INPUT], "parameters": {"binary_data_output": True}},
    **AS_BINARY,
)
for _name, _sent, _error in (
    ("V2 no inputs", {}, "inputs: expected a list with at least one tensor"),
    (
        "V2 unknown input",
        {"inputs": [{**INPUT, "name": "x"}]},
        'inputs[0]: expected a tensor with the name of an input, input, given "x"',
    ),
    (
        "V2 unknown output",
        {"inputs": [INPUT], "outputs": [{"name": "x"}]},
        "outputs[0]: the model has no output 'x', it has: output",
    ),
    (
        "V2 another datatype",
        {"inputs": [{**INPUT, "datatype": "INT32"}]},
        "input 'input': expected datatype FP32, given \"INT32\"",
    ),
    (
        "V2 another shape",
        {"inputs": [{**INPUT, "shape": [3, 2], "data": X.reshape(3, 2).tolist()}]},
        "input 'input': expected shape [-1, 3], given [3, 2]",
    ),
):
    ask(_name, "POST", INFER, _sent, status=400, error=_error)
ask(
    "V2 no body",
    *("POST", INFER),
    status=400,
    error="JSON Parse error: The document is empty",
)
ask(
    "V2 no size of JSON",
    *("POST", INFER, BINARY, ("Inference-Header-Content-Length", "x")),
    status=400,
    error="Inference-Header-Content-Length: expected a number of bytes, given 'x'",
)
ask(
    "V2 a sequence",
    *("POST", INFER, {"inputs": [INPUT], "parameters": {"sequence_id": 1}}),
    status=501,
    error="parameters.sequence_id: models here keep nothing from one request to the "
    "next",
)
ask(
    "V2 late",
    *("POST", "/v2/models/slow/infer"),
    {
        "inputs": [{**INPUT, "shape": [1, 3], "data": [1, 2, 3]}],
        "parameters": {"timeout": 200_000},
    },
    status=504,
    error="no answer was ready before the request's deadline",
)
ask(
    "V2 unknown model",
    *("POST", "/v2/models/none/infer", {"inputs": [INPUT]}),
    status=404,
    error=NO_MODEL,
)
ask(
    "V2 unknown version",
    *("POST", f"{V2}/versions/4/infer", {"inputs": [INPUT]}),
    status=404,
    error="model 'echo': version 4 is not served",
)
ask(
    "V2 GET of infer",
    *("GET", INFER),
    status=405,
    error=f"{INFER} takes no GET, but OPTIONS, POST",
)

METADATA = {
    "name": "echo",
    "versions": ["3", "7"],
    "platform": "simulated",
    "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 3]}],
    "outputs": [{"name": "output", "datatype": "FP32", "shape": [-1, 2]}],
}

ask("V2 metadata", "GET", V2, gives=METADATA)
ask(
    "V2 metadata of a version",
    *("GET", f"{V2}/versions/3"),
    gives={**METADATA, "versions": ["3"]},
)
ask("V2 no metadata", "GET", "/v2/models/none", status=404, error=NO_MODEL)
ask(
    "V2 config",
    *("GET", f"{V2}/config"),
    gives={
        "name": "echo",
        "platform": "simulated",
        "max_batch_size": 64,
        "input": [{"name": "input", "data_type": "TYPE_FP32", "dims": [3]}],
        "output": [{"name": "output", "data_type": "TYPE_FP32", "dims": [2]}],
        "dynamic_batching": {"max_queue_delay_microseconds": 0},
    },
)
ask("V2 ready model", "GET", f"{V2}/ready", gives={"name": "echo", "ready": True})
ask(
    "V2 models",
    *("GET", "/v2/models"),
    gives={"models": ["echo", "late", "pictures", "slow", "words"]},
)
ask("V2 live", "GET", "/v2/health/live", key="", gives={"live": True})
ask("V2 ready", "GET", "/v2/health/ready", key="", gives={"ready": True})
ask(
    "V2 index",
    *("POST", "/v2/repository/index"),
    gives=[
        {"name": name, "version": version, "state": "READY", "reason": ""}
        for name, version in (
            ("echo", "7"),
            ("echo", "3"),
            ("late", "1"),
            ("pictures", "1"),
            ("slow", "1"),
            ("words", "1"),
        )
    ],
)

# What changes the server takes an admin's key.

REPOSITORY = "/v2/repository/models"

ask(
    "a load by a client",
    *("POST", f"{REPOSITORY}/echo/load"),
    status=403,
    error="this takes an admin key; given an API key",
)
ask(
    "a load by an admin",
    *("POST", f"{REPOSITORY}/echo/load"),
    key=ADMIN_KEY,
    gives={"name": "echo", "load": True},
)
ask(
    "a load of no model",
    *("POST", f"{REPOSITORY}/none/load"),
    key=ADMIN_KEY,
    status=404,
    error="no model 'none' in the repository",
)
ask(
    "traffic as text",
    *("POST", f"{REPOSITORY}/echo/traffic", b"{}", ("Content-Type", "text/plain")),
    key=ADMIN_KEY,
    status=400,
    error="Content-Type: expected application/json, given 'text/plain'",
)
ask(
    "traffic to no label",
    *("POST", f"{REPOSITORY}/echo/traffic", {"none": 1}, JSON),
    key=ADMIN_KEY,
    status=400,
    error="traffic: none: there is no such label in [labels]",
)

# Health, and what else there is.

ask("alive", "GET", "/healthz", key="", gives={"status": "alive"})
ask("alive at the root", "GET", "/", key="", gives={"status": "alive"})
ask("alive by HEAD", "HEAD", "/healthz", key="")
ask("ready, to strangers", "GET", "/readyz", key="", gives={"status": "ready"})
ask("metrics without a key", "GET", "/metrics", key="", **UNAUTHORIZED)
ask("no path", "GET", "/none", status=404, error="there is nothing at /none")
ask("no path without a key", "GET", "/none", key="", **UNAUTHORIZED)
ask(
    "two slashes",
    *("POST", "/predict//", ROWS),
    status=404,
    error="there is nothing at /predict//",
)
