"""The Open Inference Protocol's infer bodies, without HTTP."""

import json
import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient

from app.codec.v2 import tensors
from app.codec.v2.datatypes import datatype_of
from app.codec.v2.infer_options import Options, Wanted
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, Unsupported
from tests.support.tensors import body_of, echoes, outputs_of

PAIR = echoes(a=("f4", 2), b=("i8",))
NUMBERS = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


def decode(payload, signature=PAIR, tail=None, **fields):
    """Decode a request given as a dict, or as the bytes of its JSON."""
    if not isinstance(payload, bytes):
        payload = json.dumps(payload | fields).encode()
    size = None if tail is None else len(payload)
    return tensors.decode(payload + (tail or b""), size, {DEFAULT_SIGNATURE: signature})


def tensor(name="x", datatype="FP32", shape=(1,), data=None, **rest):
    """Return one input of a request."""
    value = {"name": name, "datatype": datatype, "shape": list(shape), **rest}
    return value if data is None else {**value, "data": data}


def binary(size, name="x", datatype="FP32", shape=(1,)):
    """Return one input of a request whose values follow the JSON."""
    parameters = {"binary_data_size": size}
    return tensor(name, datatype, shape, parameters=parameters)


def only(tensor, signature, tail=None):
    """Return the array of a request with this one input."""
    (array,) = decode({"inputs": [tensor]}, signature, tail).inputs.values()
    return array


A = tensor("a", "FP32", [2, 2], [1, 2, 3, 4.5])
B = tensor("b", "INT64", [2], [-1, 2**62])
GOOD = {"inputs": [A, B]}


def refused(payload, signature=PAIR, tail=None, kind=BadInput):
    """Return the text of the error of a request."""
    with pytest.raises(kind) as caught:
        decode(payload, signature, tail)
    text = str(caught.value)
    assert len(text) < 500
    return text


# JSON tensors.


@pytest.mark.parametrize(
    "data",
    [
        pytest.param([1, 2, 3, 4, 5, 6], id="flat"),
        pytest.param([[[1, 2, 3]], [[4, 5, 6]]], id="nested as its shape"),
        pytest.param([[1, 2], [3, 4], [5, 6]], id="nested in another way"),
    ],
)
def test_flat_and_nested_values_take_the_shape_field(data):
    """Values may be flat or nested; their shape is that of the field."""
    array = only(tensor("x", "FP32", [2, 1, 3], data), echoes(x=("f4", 1, None)))
    assert array.dtype == np.float32
    assert array.tolist() == [[[1, 2, 3]], [[4, 5, 6]]]


@pytest.mark.parametrize("data", [[1, 2], [[1], [2]]])
def test_rows_of_one_value_may_have_the_size_of_the_configuration(data):
    """Single values are taken as (rows, 1), too, by dims of the configuration."""
    array = only(tensor("x", "FP32", [2, 1], data), echoes(x=("f4",)))
    assert array.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("f4", [1, -0.5, math.inf, 3.4e38, math.nan]),
        ("f8", [0.1, 1e300]),
        ("i1", [-128, 127]),
        ("u8", [0, 2**64 - 1]),
        ("i8", [-(2**63), 2**63 - 1]),
        ("?", [True, False]),
        ("O", ["é", "", "a\0"]),
    ],
)
def test_values_of_each_datatype(dtype, data):
    """Each datatype takes its own values, to its limits."""
    signature = echoes(x=(dtype,))
    datatype = datatype_of(np.dtype(dtype))
    array = only(tensor("x", datatype, [len(data)], data), signature)
    assert array.dtype == dtype
    wanted = [text.encode() for text in data] if dtype == "O" else data
    np.testing.assert_array_equal(array, np.array(wanted, dtype))


def test_inputs_are_in_the_models_order():
    """The order of a request's inputs does not matter, so that all share batches."""
    for inputs, tail in (([A, B], None), ([B, A], b"")):
        request = decode({"inputs": inputs}, tail=tail)
        assert list(request.inputs) == ["a", "b"]
        assert request.inputs["a"].tolist() == [[1, 2], [3, 4.5]]
        assert request.inputs["b"].tolist() == [-1, 2**62]


def test_null_and_unknown_keys_are_ignored():
    """A null counts as not given, and so does a sequence id of 0."""
    extra = {"parameters": None, "content_type": "x"}
    inputs = [{**A, **extra}, {**B, "parameters": {"mine": [1]}}]
    request = decode(
        {"inputs": inputs, "id": None, "outputs": None, "model_name": "m"},
        parameters={
            **{"binary_data_output": None, "mine": 1, "timeout": None},
            **{"sequence_id": 0, "sequence_start": False, "sequence_end": False},
        },
    )
    assert request.options == Options((Wanted("out_a", False), Wanted("out_b", False)))
    assert request.timeout_s is None


def test_model_without_a_default_signature():
    """A model without serving_default is run by its first signature."""
    signatures = {"first": echoes(x=("f4",)), "second": PAIR}
    body = json.dumps({"inputs": [tensor(data=[1])]}).encode()
    assert tensors.decode(body, None, signatures).signature_name == "first"
    signatures[DEFAULT_SIGNATURE] = echoes(x=("f4",))
    request = tensors.decode(body, None, signatures)
    assert request.signature_name == DEFAULT_SIGNATURE


X = echoes(x=("f4", 2))


@pytest.mark.parametrize(
    ("given", "dtype", "text"),
    [
        ({"data": [1, 2, 3]}, "f4", "data: shape [2, 2] is 4 values, given 3"),
        ({"data": [[1, 2], [3]]}, "f4", "data[1]: expected 2 values, given 1"),
        ({"data": [[1, 2], 3, 4]}, "f4", "data[0]: expected float32, given a list"),
        ({"data": [[[1]], [[2]], [[3]], [[4]]]}, "f4", "nested deeper than its shape"),
        ({"data": {"0": 1}}, "f4", 'data: expected a list, given {"0": 1}'),
        ({"data": []}, "f4", "is 4 values, given 0"),
        ({"data": [1, 2, 3, True]}, "f4", "data[3]: expected float32, given true"),
        ({"data": [1, None, 3, 4]}, "f4", "data[1]: expected float32, given null"),
        ({"data": [1, 2, "3", 4]}, "f4", "data[2]: expected float32, given the string"),
        ({"data": [1, 2, 3, 1e39]}, "f4", "data[3]: 1e+39 is out of range"),
        ({"data": [1, 2, 3.0, 4]}, "i4", "data[2]: expected int32, given 3.0"),
        ({"data": [[1, 2], [3, 2**31]]}, "i4", "data[1][1]: 2147483648 is out of"),
        ({"data": [1, 2, -1, 4]}, "u8", "data[2]: -1 is out of range for uint64"),
        ({"data": [True, 1, True, True]}, "?", "data[1]: expected bool, given 1"),
        ({"data": ["a", "b", 1, "d"]}, "O", "data[2]: expected string, given 1"),
        ({}, "f4", "expected one of data, binary_data_size, shared_memory_region, "),
        ({"datatype": "FP64"}, "f4", 'expected datatype FP32, given "FP64"'),
        ({"datatype": "BF16"}, "f4", 'expected datatype FP32, given "BF16"'),
        ({"datatype": "FP32"}, "i8", 'expected datatype INT64, given "FP32"'),
        ({"datatype": None}, "f4", "expected datatype FP32, given null"),
        ({"shape": [4]}, "f4", "expected shape [-1, 2], given [4]"),
        ({"shape": [2, 3]}, "f4", "expected shape [-1, 2], given [2, 3]"),
        ({"shape": [-1, 2]}, "f4", "expected shape [-1, 2], given [-1, 2]"),
        ({"shape": [2.0, 2]}, "f4", "expected shape [-1, 2], given [2.0, 2]"),
        ({"shape": [True, 2]}, "f4", "expected shape [-1, 2], given [true, 2]"),
        ({"shape": [1 << 63, 2]}, "f4", "expected shape [-1, 2], given [92233"),
        ({"shape": "2,2"}, "f4", 'expected shape [-1, 2], given "2,2"'),
        ({"shape": []}, "f4", "expected shape [-1, 2], given []"),
        ({"shape": [2] * 900}, "f4", "expected shape [-1, 2], given [2, 2, 2"),
        ({"shape": [0, 2], "data": []}, "f4", "shape [0, 2] has no rows"),
        ({"parameters": [1]}, "f4", "parameters must be an object, given [1]"),
    ],
)
def test_input_that_does_not_fit_is_refused(given, dtype, text):
    """A wrong value, shape or datatype is refused with the name and the place."""
    good = tensor("x", datatype_of(np.dtype(dtype)), [2, 2])
    if "data" not in given and given:
        good["data"] = [1, 2, 3, 4]
    said = refused({"inputs": [good | given]}, echoes(x=(dtype, 2)))
    assert text in said
    assert said.startswith("input 'x': ")


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ([], "expected a JSON object"),
        ({}, "inputs: expected a list with at least one tensor"),
        ({"inputs": []}, "inputs: expected a list"),
        ({"inputs": {"a": A}}, "inputs: expected a list"),
        ({"inputs": [1]}, "inputs[0]: expected a tensor with the name of an input"),
        (
            {"inputs": [A, {**B, "name": "c"}]},
            "inputs[1]: expected a tensor with the n",
        ),
        ({"inputs": [A, {**B, "name": ["a"]}]}, 'a or b, given ["a"]'),
        ({"inputs": [A, A]}, "input 'a' is given twice"),
        ({"inputs": [B]}, "input 'a' is missing"),
        (
            {"inputs": [A, {**B, "shape": [1], "data": [1]}]},
            "input 'a' has 2 rows and input 'b' 1; rows run in batches, so the ",
        ),
        ({**GOOD, "id": 7}, "id: expected a string, given 7"),
        ({**GOOD, "parameters": []}, "the request: parameters must be an object"),
        ({**GOOD, "outputs": {}}, "outputs: expected a list, given {}"),
        ({**GOOD, "outputs": ["out_a"]}, "outputs[0]: expected"),
        ({**GOOD, "outputs": [{"name": "a"}]}, "has no output 'a', it has: out_a, out"),
        ({**GOOD, "outputs": [{"name": "out_a"}] * 2}, "'out_a' is named twice"),
        (
            {**GOOD, "outputs": [{"name": "out_a", "parameters": {"binary_data": 1}}]},
            "outputs[0].parameters.binary_data: expected true or false, given 1",
        ),
    ],
)
def test_malformed_request_is_refused(payload, text):
    """A missing, unknown or repeated field is refused."""
    assert text in refused(json.dumps(payload).encode())


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"timeout": 1.5}, "timeout: expected a whole number of microseconds, given 1"),
        ({"timeout": -1}, "timeout: expected a whole number of microseconds, given -1"),
        ({"timeout": True}, "timeout: expected a whole number of microseconds"),
        ({"timeout": "1"}, "timeout: expected a whole number of microseconds"),
        ({"binary_data_output": 1}, "binary_data_output: expected true or false"),
        ({"triton_x": 1}, "parameters.triton_x: names that begin with triton_ are"),
        ({"x": {}}, "parameters.x: expected a string, a number or a boolean"),
        ({"headers": ["a"]}, "parameters.headers: expected a string, a number or a"),
    ],
)
def test_invalid_parameter_is_refused(parameters, text):
    """A parameter with a reserved name, or of a wrong type, is refused by its name."""
    assert text in refused({**GOOD, "parameters": parameters})


@pytest.mark.parametrize(
    ("micros", "seconds"), [(None, None), (0, None), (1, 1e-6), (2_500_000, 2.5)]
)
def test_timeout_parameter_is_in_microseconds(micros, seconds):
    """A timeout of 0 is none."""
    request = decode({**GOOD, "parameters": {"timeout": micros, "priority": 1}})
    assert request.timeout_s == seconds


@pytest.mark.parametrize(
    "payload",
    [
        {**GOOD, "parameters": {"sequence_id": 3}},
        {**GOOD, "parameters": {"sequence_id": 0, "sequence_start": True}},
        {**GOOD, "outputs": [{"name": "out_a", "parameters": {"classification": 1}}]},
        {
            **GOOD,
            "outputs": [{"name": "out_a", "parameters": {"shared_memory_region": "r"}}],
        },
        {
            "inputs": [
                tensor("a", shape=[1, 2], parameters={"shared_memory_region": "r"})
            ]
        },
    ],
    ids=["sequence", "start", "classification", "memory out", "memory in"],
)
def test_unsupported_features_are_refused(payload):
    """Sequences, classifications and shared memory are a 501."""
    refused(payload, kind=Unsupported)


# Requested outputs.


@pytest.mark.parametrize(
    ("default", "outputs", "wanted"),
    [
        (None, None, [("out_a", False), ("out_b", False)]),
        (None, [], [("out_a", False), ("out_b", False)]),
        (True, None, [("out_a", True), ("out_b", True)]),
        (True, [("out_b", None)], [("out_b", True)]),
        (True, [("out_b", False)], [("out_b", False)]),
        (
            False,
            [("out_b", True), ("out_a", None)],
            [("out_b", True), ("out_a", False)],
        ),
    ],
)
def test_requested_outputs_are_selected(default, outputs, wanted):
    """Outputs keep their order, and binary_data overrides binary_data_output."""
    payload = {**GOOD, "parameters": {"binary_data_output": default}}
    if outputs is not None:
        payload["outputs"] = [
            {"name": name, "parameters": {"binary_data": binary}}
            for name, binary in outputs
        ]
    given = decode(payload).options.outputs
    assert given == tuple(Wanted(name, binary) for name, binary in wanted)


def test_fp16_in_json_is_refused():
    """FP16 is binary only, in requests and in responses."""
    signature = echoes(x=("f2",))
    given = {"inputs": [tensor(datatype="FP16", data=[1])]}
    given["parameters"] = {"binary_data_output": True}
    assert "FP16 has no form in JSON: send it binary" in refused(given, signature)
    given = {"inputs": [binary(2, datatype="FP16")]}
    assert "ask for it with binary_data" in refused(given, signature, b"\0\x3c")
    given["parameters"] = {"binary_data_output": True}
    assert decode(given, signature, b"\0\x3c").inputs["x"].tolist() == [1]


# Binary tensors.


@pytest.mark.parametrize("dtype", NUMBERS)
def test_binary_numbers_are_a_view_of_the_body(dtype):
    """Numbers behind the JSON are not copied, at any alignment."""
    array = np.arange(6).astype(dtype).reshape(2, 3)
    name = datatype_of(array.dtype)
    wish = {"parameters": {"binary_data_output": True}}
    for blanks in range(8):
        given = {"inputs": [binary(array.nbytes, datatype=name, shape=[2, 3])], **wish}
        head = json.dumps(given).encode() + b" " * blanks
        body = head + array.tobytes()
        signatures = {DEFAULT_SIGNATURE: echoes(x=(dtype, 3))}
        read = tensors.decode(body, len(head), signatures).inputs["x"]
        assert read.dtype == array.dtype
        assert read.tolist() == array.tolist()
        assert np.shares_memory(read, np.frombuffer(body, np.uint8))


def test_json_and_binary_inputs_mix():
    """Binary inputs take the bytes behind the JSON in their order."""
    signature = echoes(a=("f4",), b=("i8",), c=("?",))
    given = [
        binary(8, "c", "BOOL", [8]),
        tensor("b", "INT64", [8], list(range(8))),
        binary(32, "a", "FP32", [8]),
    ]
    tail = bytes([1, 0] * 4) + np.arange(8, dtype="<f4").tobytes()
    inputs = decode({"inputs": given}, signature, tail).inputs
    assert inputs["c"].tolist() == [True, False] * 4
    assert inputs["b"].tolist() == inputs["a"].tolist() == list(range(8))


def test_binary_strings_have_a_length_prefix():
    """A binary string is its length in four bytes, then any bytes."""
    strings = [b"", b"\xff\0", b"x" * 300]
    tail = b"".join(struct.pack("<I", len(text)) + text for text in strings)
    given = binary(len(tail), datatype="BYTES", shape=[1, 3])
    array = only(given, echoes(x=("O", 3)), tail)
    assert array.tolist() == [strings]
    assert array.dtype == object


def test_empty_tensor_is_no_bytes():
    """A tensor without values has a binary_data_size of 0."""
    given = binary(0, shape=[2, 0])
    assert only(given, echoes(x=("f4", None)), b"").shape == (2, 0)
    given = binary(0, datatype="BYTES", shape=[2, 0])
    assert only(given, echoes(x=("O", None)), b"").shape == (2, 0)


@pytest.mark.parametrize(
    ("given", "tail", "dtype", "text"),
    [
        (binary(7), bytes(8), "f4", "is 4 bytes, given 7"),
        (binary(8), bytes(8), "f4", "shape [1] of FP32 is 4 bytes, given 8"),
        (binary(4), bytes(3), "f4", "binary_data_size is 4, and 3 bytes are left"),
        (binary(4), bytes(9), "f4", "9 bytes follow the JSON, and the inputs take 4"),
        (tensor(data=[1]), bytes(2), "f4", "2 bytes follow the JSON, and the inputs t"),
        (
            binary(-1),
            b"",
            "f4",
            "binary_data_size: expected a number of bytes, given -1",
        ),
        (binary(4.0), bytes(4), "f4", "expected a number of bytes, given 4.0"),
        (binary(True), bytes(4), "f4", "expected a number of bytes, given true"),
        (binary("4"), bytes(4), "f4", 'expected a number of bytes, given "4"'),
        (binary(1 << 62), bytes(4), "f4", "is 4611686018427387904, and 4 bytes are"),
        (binary(4) | {"data": [1]}, bytes(4), "f4", "given data and binary_data_size"),
        (
            binary(1, datatype="BOOL"),
            b"\x02",
            "?",
            "a bool is 0 or 1, given 2",
        ),
        (
            binary(3, datatype="BYTES"),
            bytes(3),
            "O",
            "string 0 begins with a length of",
        ),
        (
            binary(5, datatype="BYTES"),
            b"\xff\xff\xff\xffx",
            "O",
            "string 0 has 4294967295 bytes by its length, and 1 are left",
        ),
        (
            binary(10, datatype="BYTES"),
            b"\x01\0\0\0x\x02\0\0\0x",
            "O",
            "string 1 has 2 bytes by its length, and 1 are left",
        ),
        (binary(8, datatype="BYTES"), bytes(8), "O", "is 1 strings, given more"),
        # The bytes behind a string too many are not read.
        (
            binary(13, datatype="BYTES"),
            bytes(8) + b"\xff\xff\xff\xffx",
            "O",
            "is 1 strings, given more",
        ),
        (binary(0, datatype="BYTES"), b"", "O", "shape [1] is 1 strings, given 0"),
    ],
)
def test_binary_data_that_does_not_fit_is_refused(given, tail, dtype, text):
    """Too few bytes, too many, or a length beyond them is refused with its place."""
    assert text in refused({"inputs": [given]}, echoes(x=(dtype,)), tail)


def test_huge_shape_without_values_is_refused():
    """It allocates nothing itself, but a model's outputs may be as large."""
    signature = echoes(x=("f4", None, None))
    for shape in ([1 << 62, 0, 1 << 62], [1, 1 << 33, 0]):
        text = refused({"inputs": [binary(0, shape=shape)]}, signature, b"")
        assert "is a shape without values whose other sizes multiply to more" in text
    given = binary(0, shape=[64, 224 * 224 * 3, 0])
    assert only(given, signature, b"").shape == (64, 224 * 224 * 3, 0)


def test_wrong_json_size_is_refused():
    """Binary data needs the header with the JSON's size, which ends in the body."""
    text = refused({"inputs": [binary(0, shape=[1])]}, echoes(x=("f4",)))
    assert "wants the header Inference-Header-Content-Length" in text
    with pytest.raises(BadInput, match=r"11 bytes of JSON .* the body has 10"):
        tensors.decode(bytes(10), 11, {DEFAULT_SIGNATURE: PAIR})


# Raw binary requests.


@pytest.mark.parametrize(
    ("spec", "body", "row"),
    [
        (("f4",), struct.pack("<f", 1.5), [1.5]),
        (("i2", 2, 2), struct.pack("<4h", 1, 2, 3, 4), [[[1, 2], [3, 4]]]),
        (("i2", None, 2), struct.pack("<4h", 1, 2, 3, 4), [[[1, 2], [3, 4]]]),
        (("u1", None), b"abc", [[97, 98, 99]]),
        (("u1", None), b"", [[]]),
        (("O",), b"a\0b", [b"a\0b"]),
        (("O", 1), b"", [[b""]]),
    ],
)
def test_raw_body_is_one_row(spec, body, row):
    """The length of a body without JSON determines the free size of its row."""
    request = tensors.decode(body, 0, {DEFAULT_SIGNATURE: echoes(x=spec)})
    assert request.inputs["x"].tolist() == row
    assert request.options == Options((Wanted("out_x", binary=True),))


@pytest.mark.parametrize(
    ("specs", "body", "text"),
    [
        ({"a": ("f4",), "b": ("f4",)}, bytes(4), "the model takes several: a, b"),
        ({"x": ("f4", None, None)}, bytes(4), "(any, any) has several free sizes"),
        ({"x": ("f4", 2)}, bytes(4), "shape [1, 2] of FP32 is 8 bytes, given 4"),
        ({"x": ("f4", None, 2)}, bytes(9), "shape [1, 1, 2] of FP32 is 8 bytes, give"),
        ({"x": ("O", 2)}, b"a", "(2,) is not one string"),
        ({"x": ("O", None)}, b"a", "(any,) is not one string"),
        ({"x": ("?",)}, b"\x07", "a bool is 0 or 1, given 7"),
    ],
)
def test_raw_body_of_an_unknown_shape_is_refused(specs, body, text):
    """A body whose length does not determine the shape is refused."""
    with pytest.raises(BadInput, match=r".+") as caught:
        tensors.decode(body, 0, {DEFAULT_SIGNATURE: echoes(**specs)})
    assert text in str(caught.value)


# Responses.


def asking(options):
    """Return a request for outputs; its inputs do not matter."""
    return tensors.TensorsRequest(DEFAULT_SIGNATURE, {}, options)


def encode(outputs, *, binary=(), request_id=None):
    """Return the JSON of a response, the bytes behind it, and the JSON's size."""
    wanted = tuple(Wanted(name, name in binary) for name in outputs)
    body, size = tensors.encode("m", 7, asking(Options(wanted, request_id)), outputs)
    return json.loads(body[:size]), b"" if size is None else body[size:], size


def test_encode_json():
    """Outputs in JSON are flat, have a shape, and no parameters."""
    outputs = {"x": np.array([[1, 0.2]], "f4"), "y": np.array([True])}
    answer, tail, size = encode(outputs)
    assert size is None
    assert tail == b""
    assert answer == {
        "model_name": "m",
        "model_version": "7",
        "outputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 0.2]},
            {"name": "y", "datatype": "BOOL", "shape": [1], "data": [True]},
        ],
    }


def test_encode_binary():
    """Binary outputs follow the JSON, which has the size of each."""
    outputs = {
        "x": np.array([[1, 2]], "i2")[:, ::-1],
        "y": np.array([3], "u1"),
        "z": np.array([b"ab", b""], object),
    }
    answer, tail, size = encode(outputs, binary=("x", "z"), request_id="é")
    assert size
    assert answer["id"] == "é"
    x, y, z = answer["outputs"]
    assert x["parameters"] == {"binary_data_size": 4}
    assert "data" not in x
    assert y["data"] == [3]
    assert "parameters" not in y
    assert z["parameters"] == {"binary_data_size": 10}
    assert tail == b"\x02\0\x01\0" + b"\x02\0\0\0ab" + b"\0\0\0\0"


def test_encode_empty_binary_output_as_json():
    """Without bytes behind the JSON a response is JSON, as tritonclient expects."""
    options = Options((Wanted("x", binary=True), Wanted("y", binary=False)))
    outputs = {"x": np.zeros((1, 0), "f4"), "y": np.array([3])}
    body, size = tensors.encode("m", 1, asking(options), outputs)
    assert size is None
    result = InferenceServerClient.parse_response_body(body)
    assert result.get_output("x")["parameters"] == {"binary_data_size": 0}
    assert result.as_numpy("x").shape == (1, 0)


def test_only_requested_outputs_are_written():
    """The outputs are in the order of the request; NaN and infinities are tokens."""
    outputs = {name: np.zeros(1, "f4") for name in "xyz"}
    outputs["x"] = np.array([np.nan, -np.inf, 0.2], "f4")
    options = Options((Wanted("z", binary=False), Wanted("x", binary=False)))
    body, _ = tensors.encode("m", 1, asking(options), outputs)
    assert [output["name"] for output in json.loads(body)["outputs"]] == ["z", "x"]
    assert b'"data":[NaN,-Infinity,0.2]' in body


def test_encode_strings_in_json():
    """A string is text; one that is not UTF-8 requires the binary form."""
    assert encode({"x": np.array(["é".encode()], object)})[0]["outputs"][0] == {
        "name": "x",
        "datatype": "BYTES",
        "shape": [1],
        "data": ["é"],
    }
    with pytest.raises(BadInput, match="'x' holds a string that is no UTF-8"):
        encode({"x": np.array([b"\xff"], object)})


@pytest.mark.parametrize("size", [None, 0])
@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_dtype_without_a_datatype_is_unsupported(where, size):
    """Complex numbers have no datatype in the protocol: a 501 before a run."""
    complex_one, plain = echoes(x=("c8",)), echoes(x=("f4",))
    signature = replace(plain, **{where: getattr(complex_one, where)})
    body = bytes(8)
    if size is None:
        body = json.dumps({"inputs": [tensor(data=[1])]}).encode()
    with pytest.raises(Unsupported, match="complex64 has no datatype"):
        tensors.decode(body, size, {DEFAULT_SIGNATURE: signature})


# tritonclient.


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("rows", [1, 33])
def test_tritonclient_round_trip(rows, binary_in, binary_out):
    """The client reads back the tensors that it sent, in JSON and in binary."""
    arrays = {
        "f": np.random.default_rng(rows).standard_normal((rows, 3)).astype("f4"),
        "i": np.arange(rows) - 2**62,
        "b": np.arange(rows) % 2 == 0,
        "s": np.array([b"row %d" % row for row in range(rows)], object),
    }
    signature = echoes(f=("f4", 3), i=("i8",), b=("?",), s=("O",))
    names = [spec.name for spec in signature.outputs]
    body, size = body_of(
        arrays, binary=binary_in, outputs=outputs_of(names, binary=binary_out)
    )
    request = tensors.decode(body, size, {DEFAULT_SIGNATURE: signature})
    outputs = {f"out_{name}": array for name, array in request.inputs.items()}
    body, size = tensors.encode("m", 1, request, outputs)
    result = InferenceServerClient.parse_response_body(body, header_length=size)
    for name, array in arrays.items():
        given = result.as_numpy(f"out_{name}")
        assert given.dtype == array.dtype
        sent = array.tolist()
        if name == "s" and not binary_out:
            sent = [text.decode() for text in sent]
        assert given.tolist() == sent
