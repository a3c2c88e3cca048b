"""Requests of models that are not batched: each tensor is whole, and has no rows."""

import io
import json

import numpy as np
import pytest

from app.codec import npy, rows
from app.codec.bounds import UNBOUNDED, Bounds
from app.codec.v2 import tensors
from app.codec.v2.infer_options import read_options
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import BadInput

WHOLE = rows.Form(columnar=True, is_whole=True)


def whole(*inputs, outputs=()):
    """Return a signature of whole tensors, each (name, dtype, shape); None: any."""

    def specs(given):
        return tuple(
            TensorSpec(name, np.dtype(dtype), shape or (), any_rank=shape is None)
            for name, dtype, shape in given
        )

    return Signature(specs(inputs), specs(outputs), None, True, "input a is odd")


def decoded(payload, signature, bounds=UNBOUNDED):
    body = json.dumps(payload).encode()
    return rows.decode(body, {DEFAULT_SIGNATURE: signature}, bounds=bounds)


@pytest.mark.parametrize(
    ("dtype", "shape", "value"),
    [
        ("f4", (), 2.5),
        ("O", (), "text"),
        ("i8", (3,), [1, 2, 3]),
        ("f4", (None, 2), [[1, 2], [3, 4], [5, 6]]),
        ("f4", None, 2.5),
        ("f4", None, [[[1], [2]]]),
        ("O", None, [["a", "b"]]),
        ("bool", None, [True, False]),
        ("f4", (None, 2), [[1, 2]] * 3000),
        ("f4", None, [[1, 2]] * 3000),
        ("f4", (None,), []),
        ("f4", None, []),
    ],
)
def test_value_of_an_input_is_its_whole_tensor(dtype, shape, value):
    """It is the only row of the job, in the shape that the client sends."""
    request = decoded({"inputs": value}, whole(("x", dtype, shape)))
    array = request.inputs["x"]
    wanted = np.array(value, dtype)
    if dtype == "O":
        wanted = np.vectorize(str.encode, otypes="O")(wanted)
    np.testing.assert_array_equal(array, wanted[np.newaxis], strict=True)
    assert request.form == WHOLE


def test_inputs_of_unlike_lengths_are_one_request():
    """Named inputs need no common first dimension."""
    signature = whole(("a", "f4", (None,)), ("b", "i4", ()))
    inputs = decoded({"inputs": {"a": [1, 2, 3], "b": 7}}, signature).inputs
    assert inputs["a"].tolist() == [[1, 2, 3]]
    assert inputs["b"].tolist() == [7]


def test_instances_are_the_first_dimension_of_a_whole_tensor():
    """As in TensorFlow Serving: the list of instances is the tensor."""
    request = decoded({"instances": [[1, 2], [3, 4]]}, whole(("x", "f4", None)))
    assert request.inputs["x"].tolist() == [[[1, 2], [3, 4]]]
    assert request.form == rows.Form(is_whole=True)
    signature = whole(("a", "f4", None), ("b", "f4", (2,)))
    named = decoded({"instances": [{"a": [1], "b": 3}, {"a": [2], "b": 4}]}, signature)
    assert named.inputs["a"].tolist() == [[[1], [2]]]
    assert named.inputs["b"].tolist() == [[3, 4]]


def test_length_of_a_whole_tensor_is_no_number_of_rows():
    """The bound on rows counts one for a request."""
    signature = whole(("x", "f4", (None,)))
    bounds = Bounds(max_rows=2)
    for count in (5, 5000):
        request = decoded({"inputs": [1] * count}, signature, bounds)
        assert request.inputs["x"].shape == (1, count)


@pytest.mark.parametrize(
    ("shape", "value", "text"),
    [
        ((), [1], "inputs: expected shape (), given a list"),
        ((3,), 1, "inputs: expected shape (3,), given a single value"),
        ((3,), [1, 2], "inputs: expected shape (3,), given (2,)"),
        ((3,), [1, 2] * 3000, "inputs: expected shape (3,), given (6000,)"),
        ((2, 2), [[1, 2], [3]], "inputs[1]: expected 2 values, given 1"),
        (None, [[1, 2], [3]], "inputs[1]: expected 2 values, given 1"),
        (None, [1, "a"], "inputs[1]: expected float32, given the string 'a'"),
        (None, "a", "inputs[0]: expected float32, given the string 'a'"),
        ((None,), {"b": 1}, "Missing named input: x in 'inputs' object."),
    ],
)
def test_value_that_does_not_fit_is_refused(shape, value, text):
    """The error names the place, the expected shape and the given one."""
    with pytest.raises(BadInput) as raised:
        decoded({"inputs": value}, whole(("x", "f4", shape)))
    assert str(raised.value).startswith(text)


def test_instances_of_a_scalar_are_refused_with_the_form_that_works():
    """The error says to send inputs."""
    signature = whole(("a", "f4", ()), ("b", "f4", (2,)))
    with pytest.raises(BadInput, match=r"instances: expected shape \(\), .*inputs"):
        decoded({"instances": [{"a": 1, "b": [1, 2]}]}, signature)


def test_outputs_in_columns_are_whole_tensors():
    """Scalars are values, and lengths may differ."""
    outputs = {
        "n": np.array([3], "i8"),
        "text": np.array([b"a"], object),
        "half": np.array([0.1], "f2"),
        "boxes": np.array([[[1, 2], [3, 4]]], "f4"),
    }
    answer = json.loads(rows.encode(outputs, WHOLE))
    assert answer == {
        "outputs": {"n": 3, "text": "a", "half": 0.1, "boxes": [[1, 2], [3, 4]]}
    }
    assert json.loads(rows.encode({"n": outputs["n"]}, WHOLE)) == {"outputs": 3}
    assert rows.encode({"n": np.array([np.inf])}, WHOLE) == b'{"outputs":Infinity}'


def test_instances_are_answered_by_rows_of_equal_lengths():
    """Outputs that are as long as each other are predictions."""
    form = rows.Form(is_whole=True)
    y, z = np.array([[1, 2]], "f4"), np.array([[[3], [4]]], "f4")
    assert json.loads(rows.encode({"y": y}, form)) == {"predictions": [1, 2]}
    assert json.loads(rows.encode({"y": y, "z": z}, form)) == {
        "predictions": [{"y": 1, "z": [3]}, {"y": 2, "z": [4]}]
    }


@pytest.mark.parametrize("other", [np.array([3.0]), np.array([[1.0, 2, 3]])])
def test_instances_without_rows_in_the_outputs_are_refused(other):
    """The error names the form of request that works."""
    outputs = {"y": np.array([[1.0, 2]]), "z": other}
    with pytest.raises(BadInput, match=r'send \{"inputs": \.\.\.\} instead of'):
        rows.encode(outputs, rows.Form(is_whole=True))


def v2(signature, *inputs, binary=b""):
    head = json.dumps({"inputs": list(inputs)}).encode()
    return tensors.decode(
        head + binary, len(head), {DEFAULT_SIGNATURE: signature}, Bounds(max_rows=2)
    )


def test_v2_shapes_are_those_of_whole_tensors():
    """JSON and binary tensors have any lengths, and scalars the shape []."""
    signature = whole(("a", "f4", ()), ("b", "i4", None), outputs=[("y", "f4", ())])
    a = {"name": "a", "datatype": "FP32", "shape": [], "data": [2.5]}
    b = {
        "name": "b",
        "datatype": "INT32",
        "shape": [3],
        "parameters": {"binary_data_size": 12},
    }
    request = v2(signature, a, b, binary=np.array([7, 8, 9], "<i4").tobytes())
    assert request.inputs["a"].tolist() == [2.5]
    assert request.inputs["b"].tolist() == [[7, 8, 9]]
    body, _ = tensors.encode("m", 1, request, {"y": np.array([4.5], "f4")})
    (output,) = json.loads(body)["outputs"]
    assert (output["shape"], output["data"]) == ([], [4.5])


def test_v2_shape_that_does_not_fit_is_refused():
    """The error has the shape of the whole tensor."""
    tensor = {"name": "a", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    text = r"input 'a': expected shape \[-1, 2\], given \[1, 3\]"
    with pytest.raises(BadInput, match=text):
        v2(whole(("a", "f4", (None, 2))), tensor)


@pytest.mark.parametrize("shape", [[1] * 64, [1 << 62] * 150])
def test_v2_shape_of_too_many_dimensions_is_refused(shape):
    """NumPy has no such array, and the product of the sizes is not computed."""
    tensor = {"name": "a", "datatype": "FP32", "shape": shape, "data": [1]}
    text = f"input 'a': no array has {len(shape)} dimensions"
    with pytest.raises(BadInput, match=text):
        v2(whole(("a", "f4", None)), tensor)


def test_v2_bytes_without_json_need_a_known_shape():
    """A body of bytes alone does not tell the rank."""
    signature = whole(("a", "f4", None), outputs=[("y", "f4", ())])
    with pytest.raises(BadInput, match="its shape is not known: send JSON"):
        tensors.decode(b"1234", 0, {DEFAULT_SIGNATURE: signature})
    assert read_options({}, signature).outputs


def test_npy_is_a_whole_tensor():
    """A file of any shape that fits is the tensor, and so is the answer's."""
    file = io.BytesIO()
    np.save(file, np.float32(2.5))
    signature = whole(("x", "f4", ()))
    inputs = npy.decode(file.getvalue(), signature)
    assert inputs["x"].tolist() == [2.5]
    answer = npy.encode({"y": np.array([[1.5, 2]])}, is_whole=True)
    assert np.load(io.BytesIO(answer)).tolist() == [1.5, 2]
