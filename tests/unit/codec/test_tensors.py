"""The Open Inference Protocol's bodies, without HTTP around them."""

import json
import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient

from app.codec import tensors
from app.codec.datatypes import datatype_of
from app.codec.infer_options import Options, Wanted
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, Unsupported
from tests.support.tensors import body_of, echoes, outputs_of

PAIR = echoes(a=("f4", 2), b=("i8",))
NUMBERS = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


def decode(payload, signature=PAIR, tail=None, **fields):
    """Read a request given as a dict, or as the bytes of its JSON."""
    if not isinstance(payload, bytes):
        payload = json.dumps(payload | fields).encode()
    size = None if tail is None else len(payload)
    return tensors.decode(payload + (tail or b""), size, {DEFAULT_SIGNATURE: signature})


def tensor(name="x", datatype="FP32", shape=(1,), data=None, **rest):
    """One input of a request."""
    value = {"name": name, "datatype": datatype, "shape": list(shape), **rest}
    return value if data is None else {**value, "data": data}


def binary(size, name="x", datatype="FP32", shape=(1,)):
    """One input of a request whose values follow the JSON."""
    parameters = {"binary_data_size": size}
    return tensor(name, datatype, shape, parameters=parameters)


def only(tensor, signature, tail=None):
    """The array of a request with this one input."""
    (array,) = decode({"inputs": [tensor]}, signature, tail).inputs.values()
    return array


A = tensor("a", "FP32", [2, 2], [1, 2, 3, 4.5])
B = tensor("b", "INT64", [2], [-1, 2**62])
GOOD = {"inputs": [A, B]}


def refused(payload, signature=PAIR, tail=None, kind=BadInput):
    """The text with which a request is refused."""
    with pytest.raises(kind) as caught:
        decode(payload, signature, tail)
    text = str(caught.value)
    assert len(text) < 500
    return text


# Values in the JSON.


@pytest.mark.parametrize(
    "data",
    [
        pytest.param([1, 2, 3, 4, 5, 6], id="flat"),
        pytest.param([[[1, 2, 3]], [[4, 5, 6]]], id="nested as its shape"),
        pytest.param([[1, 2], [3, 4], [5, 6]], id="nested in another way"),
    ],
)
def test_the_shape_field_rules(data):
    """Values stand flat or nested, in the order of rows; their shape is the field's."""
    array = only(tensor("x", "FP32", [2, 1, 3], data), echoes(x=("f4", 1, None)))
    assert array.dtype == np.float32
    assert array.tolist() == [[[1, 2, 3]], [[4, 5, 6]]]


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("f4", [1, -0.5, math.inf, 3.4e38]),
        ("f8", [0.1, 1e300]),
        ("i1", [-128, 127]),
        ("u8", [0, 2**64 - 1]),
        ("i8", [-(2**63), 2**63 - 1]),
        ("?", [True, False]),
        ("O", ["é", "", "a\0"]),
    ],
)
def test_values_of_each_kind(dtype, data):
    """Each datatype takes the values that are its own, to its limits."""
    signature = echoes(x=(dtype,))
    datatype = datatype_of(np.dtype(dtype))
    array = only(tensor("x", datatype, [len(data)], data), signature)
    assert array.dtype == dtype
    wanted = [text.encode() for text in data] if dtype == "O" else data
    assert array.tolist() == np.array(wanted, dtype).tolist()


def test_not_a_number():
    """NaN is read as the bare token."""
    given = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [NaN,'
    array = decode(given + b"1]}]}", echoes(x=("f4",))).inputs["x"]
    assert math.isnan(array[0])
    assert array[1] == 1


def test_inputs_come_in_the_models_order():
    """The order of a request's inputs does not matter, so that all share batches."""
    for inputs in ([A, B], [B, A]):
        request = decode({"inputs": inputs})
        assert list(request.inputs) == ["a", "b"]
        assert request.inputs["a"].tolist() == [[1, 2], [3, 4.5]]
        assert request.inputs["b"].tolist() == [-1, 2**62]


def test_null_is_not_given_and_unknown_keys_are_let_be():
    """What may be left out may be null, and a key that nobody knows is no error."""
    extra = {"parameters": None, "content_type": "x"}
    inputs = [{**A, **extra}, {**B, "parameters": {"mine": [1]}}]
    request = decode(
        {"inputs": inputs, "id": None, "outputs": None, "model_name": "m"},
        parameters={"binary_data_output": None, "mine": 1, "timeout": None},
    )
    assert request.options == Options((Wanted("out_a", False), Wanted("out_b", False)))
    assert request.timeout_s is None


def test_without_a_default_signature_the_first_is_served():
    """A model that has no serving_default is asked by its first signature."""
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
def test_an_input_that_does_not_fit_is_refused(given, dtype, text):
    """A wrong value, shape or datatype is refused with the input's name and place."""
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
            "input 'a' has 2 rows and 'b' 1: the first sizes of all shapes must",
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
def test_a_request_that_makes_no_sense_is_refused(payload, text):
    """A request without what it must have, or with what nobody has, is refused."""
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
def test_parameters_that_can_not_be_are_refused(parameters, text):
    """A parameter with a reserved name, or of a wrong type, is refused by its name."""
    assert text in refused({**GOOD, "parameters": parameters})


@pytest.mark.parametrize(
    ("micros", "seconds"), [(None, None), (0, None), (1, 1e-6), (2_500_000, 2.5)]
)
def test_the_timeout_is_in_microseconds(micros, seconds):
    """A request's timeout counts microseconds, and 0 is none."""
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
def test_what_is_not_built_says_so(payload):
    """Sequences, classifications and shared memory are refused as not supported."""
    refused(payload, kind=Unsupported)


def test_a_client_without_a_sequence_may_say_so():
    """A sequence that is none is no error."""
    parameters = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
    assert decode({**GOOD, "parameters": parameters}).inputs


# Which outputs, and how.


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
def test_outputs_are_selected(default, outputs, wanted):
    """The named outputs come in their order, and an own binary_data overrides."""
    payload = {**GOOD, "parameters": {"binary_data_output": default}}
    if outputs is not None:
        payload["outputs"] = [
            {"name": name, "parameters": {"binary_data": binary}}
            for name, binary in outputs
        ]
    given = decode(payload).options.outputs
    assert given == tuple(Wanted(name, binary) for name, binary in wanted)


def test_half_width_in_json_is_refused_before_it_runs():
    """FP16 is sent and answered in binary only, and JSON either way is refused."""
    signature = echoes(x=("f2",))
    given = {"inputs": [tensor(datatype="FP16", data=[1])]}
    given["parameters"] = {"binary_data_output": True}
    assert "FP16 has no form in JSON: send it binary" in refused(given, signature)
    given = {"inputs": [binary(2, datatype="FP16")]}
    assert "ask for it with binary_data" in refused(given, signature, b"\0\x3c")
    given["parameters"] = {"binary_data_output": True}
    assert decode(given, signature, b"\0\x3c").inputs["x"].tolist() == [1]


# Values behind the JSON.


@pytest.mark.parametrize("dtype", NUMBERS)
def test_binary_values_are_a_view_of_the_body(dtype):
    """Numbers behind the JSON are read where they stand, wherever that is."""
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


def test_json_and_binary_mix():
    """Some inputs may stand in the JSON while others follow it, in their order."""
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


def test_strings_have_their_length_before_them():
    """A binary string is its length in four bytes and itself, whatever it holds."""
    strings = [b"", b"\xff\0", b"x" * 300]
    tail = b"".join(struct.pack("<I", len(text)) + text for text in strings)
    given = binary(len(tail), datatype="BYTES", shape=[1, 3])
    array = only(given, echoes(x=("O", 3)), tail)
    assert array.tolist() == [strings]
    assert array.dtype == object


def test_no_values_are_no_bytes():
    """A tensor of no values in its rows has a binary_data_size of 0."""
    given = binary(0, shape=[2, 0])
    assert only(given, echoes(x=("f4", None)), b"").shape == (2, 0)
    given = binary(0, datatype="BYTES", shape=[2, 0])
    assert only(given, echoes(x=("O", None)), b"").shape == (2, 0)


def test_a_length_of_all_the_body_is_json():
    """A request may say that its body is JSON to the end."""
    assert list(decode(GOOD, tail=b"").inputs) == ["a", "b"]


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
            "a BOOL is a byte of 0 or 1, given 2",
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
        (binary(0, datatype="BYTES"), b"", "O", "shape [1] is 1 strings, given 0"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(given, tail, dtype, text):
    """Too few bytes, too many, or a length beyond them is refused, saying which."""
    assert text in refused({"inputs": [given]}, echoes(x=(dtype,)), tail)


def test_strings_beyond_a_shape_are_not_read():
    """What follows the first string too many may be anything."""
    given, tail = binary(13, datatype="BYTES"), bytes(8) + b"\xff\xff\xff\xffx"
    problem = "is 1 strings, given more"
    assert problem in refused({"inputs": [given]}, echoes(x=("O",)), tail)


def test_sizes_that_no_array_has_are_refused():
    """A shape beyond all memory that holds no value allocates nothing."""
    given = binary(0, shape=[1 << 62, 0, 1 << 62])
    signature = echoes(x=("f4", None, None))
    assert "no array has shape" in refused({"inputs": [given]}, signature, b"")


def test_binary_values_want_the_header():
    """Without a length of the JSON nothing can follow it, and the error says so."""
    text = refused({"inputs": [binary(0, shape=[1])]}, echoes(x=("f4",)))
    assert "wants the header Inference-Header-Content-Length" in text


def test_more_json_than_there_is_is_refused():
    """A length of the JSON beyond the body is refused with both numbers."""
    with pytest.raises(BadInput, match=r"11 bytes of JSON .* the body has 10"):
        tensors.decode(bytes(10), 11, {DEFAULT_SIGNATURE: PAIR})


# A body that is one input and nothing else.


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
def test_a_raw_body_is_one_row(spec, body, row):
    """A body without JSON is one row, whose free size its length tells."""
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
        ({"x": ("?",)}, b"\x07", "a BOOL is a byte of 0 or 1, given 7"),
    ],
)
def test_a_raw_body_that_tells_no_shape_is_refused(specs, body, text):
    """A body without JSON is refused where its length does not tell its shape."""
    with pytest.raises(BadInput, match=r".+") as caught:
        tensors.decode(body, 0, {DEFAULT_SIGNATURE: echoes(**specs)})
    assert text in str(caught.value)


# Answers.


def encode(outputs, *, binary=(), request_id=None):
    """The JSON of an answer, what follows it, and the size that was told."""
    wanted = tuple(Wanted(name, name in binary) for name in outputs)
    body, size = tensors.encode("m", 7, Options(wanted, request_id), outputs)
    return json.loads(body[:size]), b"" if size is None else body[size:], size


def test_an_answer_in_json():
    """An answer in JSON is flat, has a shape, and no parameters."""
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


def test_an_answer_in_binary():
    """Binary outputs follow the JSON in their order, and it says how long each is."""
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


def test_without_a_byte_behind_it_an_answer_is_json():
    """Binary outputs without values are told of, and Triton's client reads them."""
    options = Options((Wanted("x", binary=True), Wanted("y", binary=False)))
    outputs = {"x": np.zeros((1, 0), "f4"), "y": np.array([3])}
    body, size = tensors.encode("m", 1, options, outputs)
    assert size is None
    result = InferenceServerClient.parse_response_body(body)
    assert result.get_output("x")["parameters"] == {"binary_data_size": 0}
    assert result.as_numpy("x").shape == (1, 0)


def test_only_wanted_outputs_are_written():
    """An output that was not asked for is left out, and the order is the request's."""
    outputs = {name: np.zeros(1, "f4") for name in "xyz"}
    options = Options((Wanted("z", binary=False), Wanted("x", binary=False)))
    body, _ = tensors.encode("m", 1, options, outputs)
    assert [output["name"] for output in json.loads(body)["outputs"]] == ["z", "x"]


def test_an_answer_with_not_a_number():
    """NaN and infinities are written as the bare tokens."""
    options = Options((Wanted("x", binary=False),))
    outputs = {"x": np.array([np.nan, -np.inf, 0.2], "f4")}
    body, _ = tensors.encode("m", 1, options, outputs)
    assert b'"data":[NaN,-Infinity,0.2]' in body


def test_strings_in_json_are_text():
    """A string is written as text, and one that is none wants the binary form."""
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
def test_a_dtype_without_a_name_is_not_supported(where, size):
    """Complex numbers have no datatype in the protocol, which is said before a run."""
    complex_one, plain = echoes(x=("c8",)), echoes(x=("f4",))
    signature = replace(plain, **{where: getattr(complex_one, where)})
    body = bytes(8)
    if size is None:
        body = json.dumps({"inputs": [tensor(data=[1])]}).encode()
    with pytest.raises(Unsupported, match="complex64 has no datatype"):
        tensors.decode(body, size, {DEFAULT_SIGNATURE: signature})


# Triton's own client reads what is written here, and writes what is read here.


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("rows", [1, 33])
def test_what_tritonclient_sends_it_gets(rows, binary_in, binary_out):
    """Through both codecs, in JSON and in binary, tensors stay what they were."""
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
    body, size = tensors.encode("m", 1, request.options, outputs)
    result = InferenceServerClient.parse_response_body(body, header_length=size)
    for name, array in arrays.items():
        given = result.as_numpy(f"out_{name}")
        assert given.dtype == array.dtype
        sent = array.tolist()
        if name == "s" and not binary_out:
            sent = [text.decode() for text in sent]
        assert given.tolist() == sent
