"""The infer messages of gRPC: what is read, refused and answered."""

import struct

import hypothesis.extra.numpy as numpy_arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codec.bounds import UNBOUNDED, Bounds
from app.codec.v2 import infer_messages
from app.codec.v2.datatypes import datatype_of
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import BadInput, TooLarge, Unsupported
from app.protocols.grpc_messages import message_class
from tests.support.tensors import echoes

InferRequest = message_class("inference.ModelInferRequest")
InferResponse = message_class("inference.ModelInferResponse")
FIELDS = {
    **{"?": "bool_contents", "f4": "fp32_contents", "f8": "fp64_contents"},
    **{"i1": "int_contents", "i2": "int_contents", "i4": "int_contents"},
    **{"u1": "uint_contents", "u2": "uint_contents", "u4": "uint_contents"},
    **{"i8": "int64_contents", "u8": "uint64_contents", "O": "bytes_contents"},
}
PAIR = echoes(a=("f4", 2), b=("i8",))
CLASSES = {"classification": {"int64_param": 3}}
SHARED = {"shared_memory_region": {"string_param": "mine"}}


def raw_of(array):
    """Return the bytes of an array in raw_input_contents."""
    if array.dtype != "O":
        return array.tobytes()
    return b"".join(struct.pack("<I", len(text)) + text for text in array.flat)


def tensor(name, dtype, shape, values=None, **fields):
    """Return an input, with values in the field of contents for the dtype."""
    if values is not None:
        fields["contents"] = {FIELDS[dtype]: values}
    datatype = datatype_of(np.dtype(dtype))
    return {"name": name, "datatype": datatype, "shape": shape, **fields}


def in_contents(array):
    """Return the fields of a request for the input x."""
    dtype = array.dtype.str[1:].replace("b1", "?")
    return {"inputs": [tensor("x", dtype, array.shape, array.ravel().tolist())]}


def in_raw(array):
    """Return the fields of a request for the input x, with its bytes."""
    inputs = [tensor("x", array.dtype, array.shape)]
    return {"inputs": inputs, "raw_input_contents": [raw_of(array)]}


A, B = tensor("a", "f4", [1, 2], [1, 2.5]), tensor("b", "i8", [1], [7])
GOOD = {"inputs": [A, B]}


def decode(fields, signature=PAIR, bounds=UNBOUNDED):
    """Decode a request with these fields, as it comes from the wire."""
    message = InferRequest.FromString(InferRequest(**fields).SerializeToString())
    return infer_messages.decode(message, {DEFAULT_SIGNATURE: signature}, bounds)


def refusal(fields, signature=PAIR, kind=BadInput, bounds=UNBOUNDED):
    """Return the text of the error of a request."""
    with pytest.raises(kind) as raised:
        decode(fields, signature, bounds)
    assert len(str(raised.value)) < 250
    return str(raised.value)


def check_same(back, array):
    """Check that an array came back to the bit."""
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    same = back.tolist() == array.tolist() if array.dtype == "O" else None
    assert same or back.tobytes() == array.tobytes()


def limits_of(dtype):
    """Return four values of a dtype, among them its limits."""
    kind = np.dtype(dtype).kind
    if kind in "iu":
        # A float does not hold the limits of 64 bits.
        return np.array([np.iinfo(dtype).max, 1, np.iinfo(dtype).min, 0], dtype)
    if kind == "O":
        return np.array([b"", b"a\0", b"\xff", b"b" * 300], object)
    if kind == "b":
        return np.array([True, False, False, True])
    return np.array([np.nan, -np.inf, -0.0, 1 / 3], dtype)


@pytest.mark.parametrize(
    ("made", "dtype"),
    [(in_contents, dtype) for dtype in FIELDS]
    + [(in_raw, dtype) for dtype in (*FIELDS, "f2")],
)
def test_values_of_each_datatype_are_read(made, dtype):
    """Each datatype takes its values to its limits, as numbers or as bytes."""
    array = limits_of(dtype).reshape(2, 1, 2)
    signature = echoes(x=(dtype, 1, None))
    check_same(decode(made(array), signature).inputs["x"], array)
    check_same(decode(made(array[1:]), signature).inputs["x"], array[1:])


@pytest.mark.parametrize("made", [in_contents, in_raw])
@given(data=st.data())
def test_any_array_comes_back_in_the_response(made, data):
    """An array of any datatype, shape and values is read and written to the bit."""
    dtype = data.draw(st.sampled_from([*FIELDS]))
    shapes = numpy_arrays.array_shapes(min_dims=1, max_dims=4, max_side=4)
    # Python's floats do not keep a NaN's bits.
    elements = st.binary() if dtype == "O" else {"allow_nan": False}
    array = data.draw(numpy_arrays.arrays(dtype, shapes, elements=elements))
    request = decode(made(array), echoes(x=(dtype, *array.shape[1:])))
    check_same(request.inputs["x"], array)
    response = InferResponse()
    infer_messages.encode(response, "m", 1, request, {"out_x": request.inputs["x"]})
    assert list(response.raw_output_contents) == [raw_of(array)]
    assert tuple(response.outputs[0].shape) == array.shape


def test_inputs_are_in_the_models_order():
    """The order of a request's inputs does not matter, nor that of their bytes."""
    raw = [np.array([7], "i8").tobytes(), np.array([1, 2.5], "f4").tobytes()]
    plain = [tensor("b", "i8", [1]), tensor("a", "f4", [1, 2])]
    for fields in (
        {"inputs": [B, A]},
        {"inputs": plain, "raw_input_contents": raw},
    ):
        request = decode(fields)
        assert [*request.inputs] == ["a", "b"]
        assert request.inputs["a"].tolist() == [[1, 2.5]]
        assert request.inputs["b"].tolist() == [7]
        assert not request.is_whole


X = echoes(x=("f4", 2))
BOTH = {"fp32_contents": [1, 2], "int_contents": [1]}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (tensor("x", "f4", [1, 2], [1, 2, 3]), "in contents.fp32_contents, given 3"),
        (tensor("x", "f4", [1, 2], [1]), "[1, 2] is 2 values in contents.fp32_conte"),
        (tensor("x", "f4", [1, 2]), "in contents.fp32_contents, given 0"),
        (tensor("x", "f4", [1 << 62, 2], [1]), f"is {1 << 63} values in contents."),
        (tensor("x", "f8", [1, 2], [1, 2]), 'expected datatype FP32, given "FP64"'),
        (tensor("x", "f4", [2], [1, 2]), "expected shape [-1, 2], given [2]"),
        (tensor("x", "f4", [], [1, 2]), "expected shape [-1, 2], given []"),
        (tensor("x", "f4", [-1, 2], [1, 2]), "expected shape [-1, 2], given [-1, 2]"),
        (tensor("x", "f4", [1, -2], [1, 2]), "expected shape [-1, 2], given [1, -2]"),
        (tensor("x", "f4", [0, 2]), "shape [0, 2] has no rows"),
        (
            tensor("x", "f4", [1, 2], contents={"fp64_contents": [1, 2]}),
            "expected FP32 in contents.fp32_contents, given fp64_contents",
        ),
        (
            tensor("x", "f4", [1, 2], contents=BOTH),
            "expected FP32 in contents.fp32_contents, given int_contents",
        ),
    ],
)
def test_input_that_does_not_fit_is_refused(given, text):
    """The error names the input, what was expected and what was given."""
    refused = refusal({"inputs": [given]}, X)
    assert refused.startswith("input 'x': ")
    assert text in refused


@pytest.mark.parametrize(
    ("dtype", "values", "text"),
    [
        ("i1", [127, 128], "int_contents[1]: 128 is out of range for INT8"),
        ("i1", [-129, 0], "int_contents[0]: -129 is out of range for INT8"),
        ("i2", [0, 1 << 15], "int_contents[1]: 32768 is out of range for INT16"),
        ("u1", [0, 256], "uint_contents[1]: 256 is out of range for UINT8"),
        ("u2", [1 << 16, 0], "uint_contents[0]: 65536 is out of range for UINT16"),
    ],
)
def test_number_that_the_datatype_can_not_hold_is_refused(dtype, values, text):
    """A field may be wider than its datatype, and no value is cut."""
    fields = {"inputs": [tensor("x", dtype, [2], values)]}
    assert refusal(fields, echoes(x=(dtype,))) == f"input 'x': contents.{text}"


def test_halves_in_contents_are_refused():
    """The protocol has no field for them."""
    given = tensor("x", "f2", [1], contents={"fp32_contents": [1]})
    text = refusal({"inputs": [given]}, echoes(x=("f2",)))
    assert text == "input 'x': FP16 has no contents: send raw_input_contents"


@pytest.mark.parametrize(
    ("dtype", "raw", "text"),
    [
        ("f4", b"1234567", "shape [2] of FP32 is 8 bytes, given 7"),
        ("?", b"\0\2", "a bool is 0 or 1, given 2"),
        ("O", b"\1\0\0\0a", "shape [2] is 2 strings, given 1"),
        ("O", b"\2\0\0\0a", "string 0 has 2 bytes by its length, and 1 are left"),
    ],
)
def test_raw_bytes_that_do_not_fit_are_refused(dtype, raw, text):
    """Bytes are checked as those behind JSON are."""
    fields = {"inputs": [tensor("x", dtype, [2])], "raw_input_contents": [raw]}
    assert refusal(fields, echoes(x=(dtype,))) == f"input 'x': {text}"


EIGHT = b"12345678"
PLAIN = [tensor("a", "f4", [1, 2]), tensor("b", "i8", [1])]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "inputs: expected a list with at least one tensor"),
        ({"inputs": [A]}, "input 'b' is missing"),
        ({"inputs": [A, A]}, "input 'a' is given twice"),
        ({"inputs": [A, {**B, "name": "c"}]}, "inputs[1]: expected a tensor with the"),
        (
            {"inputs": [A, tensor("b", "i8", [2], [1, 2])]},
            "input 'a' has 1 rows and input 'b' 2; rows run in batches, so the first ",
        ),
        (
            {"inputs": PLAIN, "raw_input_contents": [EIGHT]},
            "raw_input_contents: expected one for each of 2 inputs, given 1",
        ),
        (
            {"inputs": PLAIN, "raw_input_contents": [EIGHT] * 3},
            "raw_input_contents: expected one for each of 2 inputs, given 3",
        ),
        (
            {"inputs": [PLAIN[0], B], "raw_input_contents": [EIGHT] * 2},
            "input 'b': expected contents or raw_input_contents, given both",
        ),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_refused(fields, text):
    """Each input is given once, in one of two forms, with equally many rows."""
    assert refusal(fields).startswith(text)


def test_too_many_rows_are_refused():
    """The bound on rows counts before values are read."""
    fields = {"inputs": [tensor("x", "f4", [3, 2])]}
    text = refusal(fields, X, TooLarge, Bounds(max_rows=2))
    assert text.startswith("3 rows in one request, and the queue holds 2")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"inputs": [{**A, "parameters": SHARED}, B]},
            "input 'a': shared memory is not built here",
        ),
        (
            {"outputs": [{"name": "out_a", "parameters": SHARED}]},
            "outputs[0]: shared_memory_region is not built here",
        ),
        (
            {"outputs": [{"name": "out_a", "parameters": CLASSES}]},
            "outputs[0]: classification is not built here",
        ),
        (
            {"parameters": {"sequence_id": {"int64_param": 5}}},
            "parameters.sequence_id: models here keep nothing from one request to",
        ),
        (
            {"parameters": {"sequence_id": {"string_param": "5"}}},
            "parameters.sequence_id: models here keep nothing from one request to",
        ),
    ],
)
def test_feature_that_is_not_built_is_refused(fields, text):
    """A request that wants it is not answered as if it did not."""
    assert refusal({**GOOD, **fields}, kind=Unsupported).startswith(text)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"parameters": {"timeout": {"string_param": "5"}}},
            'parameters.timeout: expected a whole number of microseconds, given "5"',
        ),
        ({"parameters": {"timeout": {"int64_param": -1}}}, "parameters.timeout: expec"),
        ({"parameters": {"timeout": {"bool_param": True}}}, "parameters.timeout: expe"),
        ({"parameters": {"triton_x": {}}}, "parameters.triton_x: names that begin "),
        ({"outputs": [{"name": "y"}]}, "outputs[0]: the model has no output 'y', it h"),
        ({"outputs": [{"name": "out_a"}] * 2}, "outputs[1]: 'out_a' is named twice"),
    ],
)
def test_wrong_option_is_refused(fields, text):
    """The error is that of the option in JSON."""
    assert refusal({**GOOD, **fields}).startswith(text)


@pytest.mark.parametrize(
    ("parameters", "timeout_s"),
    [
        ({}, None),
        ({"timeout": {}}, None),
        ({"timeout": {"int64_param": 0}}, None),
        ({"timeout": {"int64_param": 1_500_000}}, 1.5),
        ({"timeout": {"uint64_param": 250}}, 0.00025),
        ({"priority": {"uint64_param": 1}, "sequence_id": {"int64_param": 0}}, None),
        ({"mine": {"double_param": 0.5}, "sequence_start": {"bool_param": 0}}, None),
        ({"binary_data_output": {"bool_param": False}}, None),
    ],
)
def test_timeout_is_in_microseconds(parameters, timeout_s):
    """No timeout and 0 are none; other parameters change nothing."""
    request = decode({**GOOD, "parameters": parameters})
    assert request.timeout_s == timeout_s
    assert all(wanted.binary for wanted in request.options.outputs)


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        ([], ["out_a", "out_b"]),
        ([{"name": "out_b"}], ["out_b"]),
        ([{"name": "out_b"}, {"name": "out_a"}], ["out_b", "out_a"]),
        (
            [{"name": "out_a", "parameters": {"binary_data": {"bool_param": False}}}],
            ["out_a"],
        ),
    ],
)
@pytest.mark.parametrize("request_id", ["", "é-7"])
def test_requested_outputs_are_written_in_their_order(outputs, names, request_id):
    """The response has the request's id, and all values in raw_output_contents."""
    request = decode({**GOOD, "outputs": outputs, "id": request_id})
    assert all(wanted.binary for wanted in request.options.outputs)
    response = InferResponse()
    results = {"out_a": np.array([[1, 2.5]], "f4"), "out_b": np.array([7], "i8")}
    infer_messages.encode(response, "m", 12, request, results)
    assert (response.model_name, response.model_version) == ("m", "12")
    assert response.id == request_id
    assert [output.name for output in response.outputs] == names
    raw = [results[name].tobytes() for name in names]
    assert list(response.raw_output_contents) == raw
    shapes = {"out_a": ("FP32", [1, 2]), "out_b": ("INT64", [1])}
    for output in response.outputs:
        assert (output.datatype, list(output.shape)) == shapes[output.name]


def test_output_without_a_datatype_is_unsupported_before_the_model_runs():
    """So it is where a request names no outputs."""
    complex_y = TensorSpec("y", np.dtype("c8"), ())
    signature = Signature(X.inputs, (complex_y,))
    text = refusal(
        {"inputs": [tensor("x", "f4", [1, 2], [1, 2])]}, signature, Unsupported
    )
    assert text == "complex64 has no datatype in the Open Inference Protocol"


def test_output_that_is_not_contiguous_is_written_in_c_order():
    """Values follow each other as in the shape, little-endian."""
    request = decode({"inputs": [tensor("x", "f4", [1, 2], [1, 2])]}, X)
    response = InferResponse()
    array = np.array([[1, 2], [3, 4]], ">f4").T
    infer_messages.encode(response, "m", 1, request, {"out_x": array})
    assert list(response.raw_output_contents) == [struct.pack("<4f", 1, 3, 2, 4)]


def test_whole_tensors_have_no_rows():
    """A model without batches takes shapes of any first size, and answers with such."""
    specs = (
        TensorSpec("a", np.dtype("f4"), (), any_rank=True),
        TensorSpec("b", np.dtype("i8"), ()),
    )
    signature = Signature(specs, (TensorSpec("y", np.dtype("f4"), ()),), None, True)
    fields = {"inputs": [tensor("a", "f4", [3], [1, 2, 3]), tensor("b", "i8", [], [7])]}
    request = decode(fields, signature, Bounds(max_rows=2))
    assert request.is_whole
    assert request.inputs["a"].tolist() == [[1, 2, 3]]
    assert request.inputs["b"].tolist() == [7]
    response = InferResponse()
    infer_messages.encode(response, "m", 1, request, {"y": np.array([4.5], "f4")})
    assert list(response.outputs[0].shape) == []
    assert list(response.raw_output_contents) == [struct.pack("<f", 4.5)]
    # As the configuration has it.
    fields["inputs"][1] = tensor("b", "i8", [1], [7])
    assert decode(fields, signature).inputs["b"].tolist() == [7]
    fields["inputs"][1] = tensor("b", "i8", [1, 1], [7])
    assert refusal(fields, signature) == "input 'b': expected shape [], given [1, 1]"


@pytest.mark.parametrize("shape", [[1] * 64, [1 << 62] * 300])
@pytest.mark.parametrize("raw", [[], [b"1234"]])
def test_tensor_of_too_many_dimensions_is_refused(shape, raw):
    """NumPy has no such array, and the product of the sizes is not computed."""
    spec = TensorSpec("x", np.dtype("f4"), (), any_rank=True)
    signature = Signature((spec,), (spec,), None, True)
    fields = {"inputs": [tensor("x", "f4", shape)], "raw_input_contents": raw}
    text = f"input 'x': no array has {len(shape)} dimensions"
    assert refusal(fields, signature) == text


def test_model_without_a_default_signature_is_run_by_its_first():
    """A request can't name a signature."""
    signatures = {"first": PAIR, "second": X}
    assert infer_messages.decode(InferRequest(**GOOD), signatures)[0] == "first"
