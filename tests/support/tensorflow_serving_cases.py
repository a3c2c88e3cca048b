"""The cases of predict in TensorFlow Serving's own tests, as requests over HTTP.

Facts from json_tensor_test, http_rest_api_handler_test and tensorflow_model_server_test
at revision 9d981c5: the body that each sends, and the status or answer that it wants.
Left out is what no client sees: C++ buffers, and maps without a tensor. Where those
tests have dtypes alone, the model here has the shapes that the case sends.
"""

import sys
from dataclasses import dataclass
from typing import Any

NAN, INF = float("nan"), float("inf")
_LARGEST, _SMALLEST = sys.float_info.max, sys.float_info.min
_DEEP = "[" * 500_000 + "]" * 500_000
_INTS = [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 0], [1, 2]]]
_FOO, _BAZ = ["foo", "bar"], ["baz", "bat"]
_HELLO, _WORLD = {"b64": "aGVsbG8="}, {"b64": "d29ybGQ="}
_TF, _SERVING = {"b64": "dGY="}, {"b64": "c2VydmluZw=="}
_TWO_ROWS = [
    {"dbl": 8.0, "flt": [1.0], "num": _INTS[0], "raw_bytes": [_HELLO, _WORLD]},
    {"dbl": 9.0, "flt": [2.0], "num": _INTS[1], "raw_bytes": [_TF, _SERVING]},
]
_TWO_COLUMNS = {name: [row[name] for row in _TWO_ROWS] for name in _TWO_ROWS[0]}
_MIXED = [
    {"i": _INTS[0], "s": _FOO, "f": [1.0, NAN], "d": [NAN]},
    {"i": _INTS[1], "s": _BAZ, "f": [2.0, INF], "d": [2.0]},
]


@dataclass(frozen=True)
class Case:
    """A request for `model`'s predict, and TensorFlow Serving's answer or status.

    `here` is Basket's, where it differs. `body` may be bytes that are not JSON.
    """

    name: str
    model: str
    body: Any
    answer: Any
    here: Any = None

    def wanted(self) -> Any:
        """Return Basket's answer or status."""
        return self.answer if self.here is None else self.here


def _rows(name: str, model: str, rows: Any, here: Any = None) -> Case:
    """Return the case of rows that an echo answers with the same rows."""
    return Case(name, model, {"instances": rows}, {"predictions": rows}, here)


def _refused(name: str, model: str, rows: Any, here: Any = None) -> Case:
    return Case(name, model, {"instances": rows}, 400, here)


_HALF = "half_plus_two"
_COLUMNS = {"i": _INTS[:1], "s": _FOO, "b": _HELLO}
CASES = (
    # json_tensor_test: requests.
    _rows("SingleUnnamedTensor", "ints", [[1, 2], [3, 4], [5, 6]]),
    Case(
        "DeeplyNestedWellFormed",
        "int_scalars",
        f'{{"instances":[1], "nested":{_DEEP}}}'.encode(),
        {"predictions": [1]},
        400,
    ),
    Case(
        "DeeplyNestedMalformed",
        "int_scalars",
        f'{{"signature_name":{_DEEP}}}'.encode(),
        400,
    ),
    _rows("MixedInputForFloatTensor", "floats", [1, 2.0, 3, 4, 5.003, 0.007, 0.0]),
    _rows("MixedInputForDoubleTensor", "doubles", [1.0, 2, 3, 4, 0.662, 0, 0.0]),
    Case(
        "FloatTensorWithPrecisionLoss",
        "floats",
        {"instances": [1435774380]},
        {"predictions": [1435774336.0]},
    ),
    Case(
        "FloatTensorWithPrecisionLoss, with a point",
        "floats",
        {"instances": [1435774380.0]},
        {"predictions": [1435774336.0]},
    ),
    Case(
        "FloatTensorThatExceedsMaxReturnsInf",
        "floats",
        {"instances": [_LARGEST]},
        {"predictions": [INF]},
        400,
    ),
    Case(
        "FloatTensorThatExceedsMaxReturnsInf, negative",
        "floats",
        {"instances": [-_LARGEST]},
        {"predictions": [-INF]},
        400,
    ),
    Case(
        "FloatTensorThatExceedsMinReturnsZero",
        "floats",
        {"instances": [_SMALLEST]},
        {"predictions": [0.0]},
    ),
    Case(
        "FloatTensorThatExceedsMinReturnsZero, negative",
        "floats",
        {"instances": [-_SMALLEST]},
        {"predictions": [-0.0]},
    ),
    Case(
        "SingleUnnamedTensorWithSignature",
        "ints",
        {"signature_name": "predict_images", "instances": [[1, 2]]},
        {"predictions": [[1, 2]]},
    ),
    Case(
        "SingleUnnamedTensorBase64Scalars",
        "text",
        {"instances": [_HELLO, _WORLD]},
        {"predictions": ["hello", "world"]},
    ),
    Case(
        "SingleUnnamedTensorBase64Lists",
        "text_lists",
        {"instances": [[_HELLO], [_WORLD]]},
        {"predictions": [["hello"], ["world"]]},
    ),
    Case(
        "SingleNamedTensorBase64",
        "text_tables",
        {"instances": [{"x": [[_HELLO], [_WORLD]]}]},
        {"predictions": [[["hello"], ["world"]]]},
    ),
    _rows("MultipleNamedTensor", "mixed", _MIXED),
    Case(
        "SingleUnnamedTensorColumnarFormat",
        "tables",
        {"inputs": {"x": _INTS[:1]}},
        {"outputs": _INTS[:1]},
    ),
    Case(
        "SingleUnnamedTensorColumnarFormat, without a name",
        "tables",
        {"inputs": _INTS[:1]},
        {"outputs": _INTS[:1]},
    ),
    Case(
        "MultipleNamedTensorColumnarFormat",
        "unlike",
        {"inputs": _COLUMNS},
        {"outputs": {**_COLUMNS, "b": "hello"}},
    ),
    Case("SingleUnnamedTensorErrors: no body", "ints", b"", 400),
    Case(
        "SingleUnnamedTensorErrors: signature_name is a number",
        "ints",
        {"signature_name": 5, "instances": [[1, 2]]},
        400,
    ),
    Case(
        "SingleUnnamedTensorErrors: rows and columns",
        "ints",
        {"instances": [[1, 2]], "inputs": [[1, 2]]},
        400,
    ),
    _refused(
        "SingleUnnamedTensorErrors: a row is longer",
        "ints",
        [[1, 2], [3, 4], [5, 6, 7]],
    ),
    _refused(
        "SingleUnnamedTensorErrors: a row is longer, for a model of any length",
        "int_lists",
        [[1, 2], [3, 4], [5, 6, 7]],
        {"predictions": [[1, 2], [3, 4], [5, 6, 7]]},
    ),
    _refused(
        "SingleUnnamedTensorErrors: a row is deeper", "ints", [[1, 2], [3, 4], [[5, 6]]]
    ),
    _refused("SingleUnnamedTensorErrors: a value and a list", "int_scalars", [1, [1]]),
    _refused(
        "SingleUnnamedTensorErrors: strings among numbers", "ints", [[1, 2], ["a", "b"]]
    ),
    _refused(
        "MultipleNamedTensorErrors: a row is deeper",
        "pairs",
        [{"i": _INTS[0], "s": _FOO}, {"i": [_INTS[1]], "s": _BAZ}],
    ),
    _refused(
        "MultipleNamedTensorErrors: a row is longer, for a model of any length",
        "pairs",
        [{"i": [*_INTS[0], [7, 8]], "s": _FOO}, {"i": _INTS[1], "s": _BAZ}],
        {
            "predictions": [
                {"i": [*_INTS[0], [7, 8]], "s": _FOO},
                {"i": _INTS[1], "s": _BAZ},
            ]
        },
    ),
    _refused(
        "MultipleNamedTensorErrors: a list among objects",
        "pairs",
        [{"i": _INTS[0], "s": _FOO}, [1, 20, 30], {"i": _INTS[1], "s": _BAZ}],
    ),
    _refused(
        "MultipleNamedTensorErrors: an object among lists",
        "text_pairs",
        [["baz", "bar"], {"x": _BAZ}],
    ),
    # json_tensor_test: answers.
    _rows("FromJsonSingleTensor", "tables", _INTS),
    Case(
        "FromJsonSingleTensor, columns", "tables", {"inputs": _INTS}, {"outputs": _INTS}
    ),
    _rows("FromJsonSingleScalarTensor", "int_scalars", [1, 2, 3, 4, 5]),
    Case(
        "FromJsonSingleScalarTensor, columns",
        "int_scalars",
        {"inputs": [1, 2, 3, 4, 5]},
        {"outputs": [1, 2, 3, 4, 5]},
    ),
    _rows("FromJsonSingleBytesTensor", "raw", [[_HELLO, _WORLD], [_TF, _SERVING]]),
    _rows(
        "FromJsonSingleFloatTensorSixDigitPrecision",
        "triples",
        [[9e06, 999999.0, 0.5], [0.0003, 3e-05, 555557.5]],
    ),
    _rows(
        "FromJsonSingleFloatTensorNonFinite", "float_pairs", [[NAN, INF], [3.0, -INF]]
    ),
    _refused("FromJsonSingleTensorErrors: complex numbers", "complex", [1.0, 2.0], 503),
    _refused("FromJsonSingleTensorErrors: no first dimension", "total", [1.0, 2.0]),
    _rows("FromJsonMultipleNamedTensors", "outputs", _TWO_ROWS),
    Case(
        "FromJsonMultipleNamedTensors, columns",
        "outputs",
        {"inputs": _TWO_COLUMNS},
        {"outputs": _TWO_COLUMNS},
    ),
    _refused(
        "FromJsonMultipleNamedTensorsErrors: unlike first dimensions",
        "sizes",
        [2, 1],
    ),
    Case(
        "FromJsonSingleZeroBatchTensor",
        "ints",
        {"inputs": []},
        {"outputs": []},
        400,
    ),
    Case(
        "FromJsonMultipleZeroBatchTensors",
        "pairs",
        {"inputs": {"i": [], "s": []}},
        {"outputs": {"i": [], "s": []}},
        400,
    ),
    _refused(
        "FromJsonMultipleZeroBatchTensorsErrors: unlike first dimensions",
        "sizes",
        [0, 1],
    ),
    # http_rest_api_handler_test, and its half_plus_two of (-1, 1).
    Case("PredictModelNameVersionErrors: model", "foo", {"instances": [1]}, 404),
    Case(
        "PredictModelNameVersionErrors: model with a version",
        "foo/versions/50",
        {"instances": [1]},
        404,
    ),
    Case(
        "PredictModelNameVersionErrors: longer name",
        f"{_HALF}99",
        {"instances": [1]},
        404,
    ),
    Case("PredictRequestErrors: no body", _HALF, b"", 400),
    Case("PredictRequestErrors: no JSON", _HALF, b"instances = [1, 2]", 400),
    _refused("PredictRequestErrors: strings for numbers", _HALF, ["x", "y"]),
    _refused(
        "PredictRequestErrors: unknown label", f"{_HALF}/labels/nonexistent", ["x", "y"]
    ),
    Case(
        "PredictRequestErrors: signature_name is a number",
        _HALF,
        {"signature_name": 100},
        400,
    ),
    Case(
        "Predict: two values in a row of shape (1,)",
        _HALF,
        {"instances": [[1.0, 2.0], [3.0, 4.0]]},
        {"predictions": [[2.5, 3.0], [3.5, 4.0]]},
        400,
    ),
    Case(
        "Predict: version",
        f"{_HALF}/versions/123",
        {"instances": [1.0, 2.0]},
        {"predictions": [2.5, 3.0]},
    ),
    Case(
        "Predict: label",
        f"{_HALF}/labels/canary",
        {"instances": [1.0, 2.0]},
        {"predictions": [2.5, 3.0]},
    ),
    Case(
        "Predict: signature_name",
        f"{_HALF}/versions/123",
        {"signature_name": "serving_default", "instances": [3.0, 4.0]},
        {"predictions": [3.5, 4.0]},
    ),
    Case(
        "Predict: columns",
        f"{_HALF}/versions/123",
        {"signature_name": "serving_default", "inputs": [3.0, 4.0]},
        {"outputs": [3.5, 4.0]},
    ),
    # tensorflow_model_server_test.
    Case(
        "testPredictREST",
        _HALF,
        {"instances": [2.0, 3.0, 4.0]},
        {"predictions": [3.0, 3.5, 4.0]},
    ),
    Case(
        "testPredictColumnarREST",
        _HALF,
        {"inputs": [2.0, 3.0, 4.0]},
        {"outputs": [3.0, 3.5, 4.0]},
    ),
)
