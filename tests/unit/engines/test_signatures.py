"""Tensor specs, dtypes, and the texts of framework errors."""

import json

import numpy as np
import pytest

from app.engines.base import Signature, TensorSpec
from app.engines.loading import (
    error_first_line,
    error_summary,
    refuse_strings,
    signature_of_tensors,
    tensor_spec,
    without_machine,
)
from app.errors import ModelLoadError

FLOAT32 = np.dtype(np.float32)


@pytest.mark.parametrize(
    ("expected", "given", "fits"),
    [
        ((), (), True),
        ((2,), (2,), True),
        ((2,), (3,), False),
        ((2,), (2, 1), False),
        ((2,), (), False),
        ((None, 2), (7, 2), True),
        ((None, 2), (0, 2), True),
        ((None, 2), (7, 3), False),
    ],
)
def test_spec_accepts_shapes_of_equal_rank_and_sizes(expected, given, fits):
    """A row's shape fits if its rank is equal and each size is equal or free."""
    assert TensorSpec("x", FLOAT32, expected).accepts(given) is fits


@pytest.mark.parametrize(
    ("shape", "text"),
    [((), "()"), ((3,), "(3,)"), ((None,), "(any,)"), ((None, 16), "(any, 16)")],
)
def test_shape_text_shows_free_sizes_as_any(shape, text):
    """A shape is written as a tuple, with any for a free size."""
    assert TensorSpec("x", FLOAT32, shape).shape_text() == text


def test_blank_rows_are_zeros_with_free_sizes_of_one():
    """Blank rows have the spec's dtype and size 1 in free dimensions."""
    blank = TensorSpec("x", np.dtype(np.int16), (None, 3)).blank(2)
    assert blank.dtype == np.int16
    assert blank.tolist() == [[[0, 0, 0]], [[0, 0, 0]]]


@pytest.mark.parametrize(
    ("dtype", "served"),
    [
        *(("float32", "float32"), ("string", "object")),
        *(("bool", "bool"), ("uint8", "uint8"), ("float16", "float16")),
    ],
)
def test_framework_dtype_maps_to_a_numpy_dtype(dtype, served):
    """Strings are served as objects; others keep their dtype."""
    assert tensor_spec("x", dtype, [3]) == TensorSpec("x", np.dtype(served), (3,))


def test_bfloat16_is_served_as_float32():
    """The spec keeps the model's own dtype, also as JSON and back."""
    spec = tensor_spec("x", "bfloat16", [3])
    assert spec == TensorSpec("x", FLOAT32, (3,), "bfloat16")
    assert TensorSpec.from_list(json.loads(json.dumps(spec.to_list()))) == spec


@pytest.mark.parametrize("dtype", ["complex64", "resource", "float8_e4m3fn", "qint8"])
def test_unsupported_dtype_is_a_load_error(dtype):
    """The error names the tensor and its dtype."""
    with pytest.raises(ModelLoadError, match=f"x: {dtype} is not served"):
        tensor_spec("x", dtype, [3])


def whole(*shapes):
    """Return specs a, b, ... of whole tensors; a shape of None is an unknown rank."""
    names = "abcdef"[: len(shapes)]
    return [
        tensor_spec(n, "float32", shape) for n, shape in zip(names, shapes, strict=True)
    ]


def test_tensors_with_free_first_dimensions_are_rows():
    """The first dimension is the batch, and no limit is noted."""
    signature = signature_of_tensors(whole([None, 3], [None]), whole([None, 2]))
    assert [spec.shape for spec in signature.inputs] == [(3,), ()]
    assert [spec.shape for spec in signature.outputs] == [(2,)]
    assert signature.batching_note() == ""
    assert signature.batch_sizes([1, 8]) == [1, 8]
    assert signature.tensor_shape(signature.inputs[0]) == (None, 3)


@pytest.mark.parametrize(
    ("size", "kind"), [(1, "not batched"), (4, "batches of exactly 4 rows")]
)
def test_fixed_first_dimension_is_the_only_batch_size(size, kind):
    """Rows run in batches of exactly that size, also if an output's is not known."""
    signature = signature_of_tensors(whole([size, 3]), whole([size], [None, 2]))
    assert [spec.shape for spec in signature.outputs] == [(), (2,)]
    assert not signature.takes_whole_tensors
    assert signature.batch_sizes([1, 8]) == (size,)
    assert signature.tensor_shape(signature.inputs[0]) == (size, 3)
    reason = f"input a has the fixed first dimension {size}"
    assert signature.batching_note() == f"{kind}: {reason}"


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        ([[]], [[None]], "input a is a single value"),
        ([[None, 3]], [None], "output a has no known number of dimensions"),
        (
            [[None, 3], [5]],
            [[None]],
            "the first dimension of input b is 5, and that of input a is free",
        ),
        (
            [[2, 3], [None]],
            [[2]],
            "the first dimension of input b is free, and that of input a is 2",
        ),
        (
            [[None, 3]],
            [[10]],
            "the first dimension of output a is 10, and that of input a is free",
        ),
    ],
)
def test_tensors_without_common_rows_are_whole(inputs, outputs, reason):
    """A request is one run, and specs have the shapes of whole tensors."""
    signature = signature_of_tensors(whole(*inputs), whole(*outputs))
    assert signature.takes_whole_tensors
    assert signature.batching_note() == f"not batched: {reason}"
    assert signature.batch_sizes([1, 8]) == (1,)
    found = [signature.tensor_shape(spec) for spec in signature.inputs]
    assert found == [None if each is None else tuple(each) for each in inputs]


def test_engine_that_pads_has_its_own_batch_sizes():
    """Those of the given sizes to which it pads; all, where it pads each of them."""
    spec = TensorSpec("x", FLOAT32, (3,))
    signature = Signature((spec,), (spec,), padded_sizes=(1, 2, 4, 8))
    assert signature.batch_sizes(range(1, 9)) == [1, 2, 4, 8]
    assert signature.batch_sizes((8,)) == [8]
    assert signature.batch_sizes((3, 6)) == (3, 6)
    assert Signature.from_list(json.loads(json.dumps(signature.to_list()))) == signature


def test_unbatched_signature_runs_one_row_and_takes_any_number():
    """Whatever sizes are allowed, or an engine pads to."""
    spec = TensorSpec("x", FLOAT32, (3,))
    signature = Signature(
        (spec,), (spec,), padded_sizes=(8, 32), unbatched=True, limit_reason="why"
    )
    assert signature.batch_sizes((8, 32)) == (1,)
    assert signature.tensor_shape(spec) == (None, 3)
    assert signature.batching_note() == "not batched: why"
    assert Signature.from_list(json.loads(json.dumps(signature.to_list()))) == signature


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/my models/a.b/words.txt; No such file", "words.txt; No such file"),
        ("can't open '/etc/x/y'", "can't open 'y'"),
        ("see https://example.com/a/b", "see https://example.com/a/b"),
        ("model/dense/MatMul and 1/2", "model/dense/MatMul and 1/2"),
    ],
)
def test_errors_have_no_folders_of_this_machine(text, shown):
    """Clients read them in /readyz."""
    assert error_summary(ValueError(text)) == shown
    assert error_first_line(ValueError(text)) == shown


def test_refuse_strings_names_the_string_input():
    """A signature of numbers passes; one with a string input is a load error."""
    number = TensorSpec("number", FLOAT32, ())
    refuse_strings(Signature((number,), (number,)))
    word = TensorSpec("word", np.dtype(object), ())
    with pytest.raises(ModelLoadError, match="word is text"):
        refuse_strings(Signature((word,), (number,)))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n wrong size\n (2, 3)", "wrong size"),
        ("", "ValueError"),
        ("A failed.\n\nException encountered: B failed.\nC", "B failed."),
        ("x" * 1000, "x" * 300),
    ],
)
def test_error_first_line_is_the_cause_in_300_characters(text, line):
    """An error is shortened to one line: the cause, else the error's class."""
    assert error_first_line(ValueError(text)) == line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "Op type not registered 'X' in binary running on vm-1.example. Make sure",
            "Op type not registered 'X'. Make sure",
        ),
        (
            "Can't get attribute 'Net' on <module '__main__' from '/bin/gunicorn'>",
            "Can't get attribute 'Net' on '__main__', the script that saved it",
        ),
        ("<module 'a.b' from '/x y/b.py'> has no c", "module 'a.b' has no c"),
        ("<Layer object at 0x7f12ab> failed", "<Layer object> failed"),
        ("vm-1: no route from vm-1 to vm-10", None),
    ],
)
def test_text_for_clients_has_no_name_of_the_machine(monkeypatch, text, shown):
    """Hosts, files of modules and addresses are left out."""
    monkeypatch.setattr("socket.gethostname", lambda: "vm-1")
    expected = "this machine: no route from this machine to vm-10"
    assert without_machine(text) == (shown or expected)
