"""Constants of basket.toml in place of a model's inputs."""

import json

import numpy as np
import pytest

from app.engines.base import DEFAULT_SIGNATURE, Signature
from app.engines.constants import with_constants
from app.engines.loading import signature_of_tensors, tensor_spec
from app.errors import ModelLoadError, OutOfDeviceMemory
from tests.support.engines import Computes


def scaled(batch):
    """Compute row * factor + bias, in whole tensors."""
    (row,), (factor,), (bias,) = batch["row"], batch["factor"], batch["bias"]
    return {"out": (row * factor + bias)[np.newaxis]}


def signature_of(**inputs):
    specs = [tensor_spec(name, *spec) for name, spec in inputs.items()]
    return signature_of_tensors(specs, [tensor_spec("out", "float32", [None, 2])])


SIGNATURE = signature_of(
    row=("float32", [None, 2]), factor=("float32", []), bias=("int32", [2])
)


def wrapped(constants, signature: Signature = SIGNATURE, compute=scaled):
    return with_constants(Computes(compute, signature), json.dumps(constants))


def test_model_batches_without_the_inputs_that_are_constants():
    """The other inputs are rows, and each is computed with the constants."""
    engine = wrapped({"factor": 3, "bias": [1, 2]})
    signature = engine.signatures[DEFAULT_SIGNATURE]
    assert [(spec.name, spec.shape) for spec in signature.inputs] == [("row", (2,))]
    assert signature.batching_note() == ""
    outputs = engine.run({"row": np.array([[1, 1], [2, 3]], np.float32)})
    assert outputs["out"].tolist() == [[4, 5], [7, 11]]


def test_model_with_a_further_single_value_still_takes_whole_tensors():
    """Only what basket.toml names is a constant; the note says what else could be."""
    engine = wrapped({"bias": [1, 2]})
    assert engine.signatures[DEFAULT_SIGNATURE].batching_note() == (
        "not batched: input factor is a single value; if all requests have the same "
        "one, basket.toml can fix it: [constants] factor = 1.0"
    )
    row = np.array([[[1, 1]]], np.float32)
    outputs = engine.run({"row": row, "factor": np.float32([3])})
    assert outputs["out"].tolist() == [[[4, 5]]]


def test_signature_without_such_an_input_is_as_before():
    """Of several signatures, those that have the input lose it."""
    engine = Computes(lambda batch: {"out": batch["row"]}, SIGNATURE)
    other = signature_of(row=("float32", [None, 2]))
    engine.signatures["other"] = other
    engine = with_constants(engine, '{"factor": 1, "bias": [0, 0]}')
    assert engine.signatures["other"] is other
    row = np.ones((3, 2), np.float32)
    assert engine.run({"row": row}, "other")["out"] is row


def test_constant_is_left_to_requests_where_it_has_rows():
    """In another signature an input of that name may have a value for each row."""
    engine = Computes(lambda batch: {"out": batch["factor"]}, SIGNATURE)
    other = signature_of(row=("float32", [None, 2]), factor=("float32", [None]))
    engine.signatures["other"] = other
    engine = with_constants(engine, '{"factor": 1, "bias": [0, 0]}')
    assert engine.signatures["other"] is other
    (row,) = engine.signatures[DEFAULT_SIGNATURE].inputs
    assert row.name == "row"
    batch = {"row": np.ones((3, 2), np.float32), "factor": np.float32([1, 2, 3])}
    assert engine.run(batch, "other")["out"].tolist() == [1, 2, 3]


def test_batch_that_does_not_fit_is_named_by_its_rows():
    """The engine sees one row of whole tensors, and the client sent three."""

    def fail(batch):
        raise OutOfDeviceMemory("a batch of 1 rows does not fit")

    engine = wrapped({"factor": 3, "bias": [1, 2]}, compute=fail)
    with pytest.raises(OutOfDeviceMemory, match="a batch of 3 rows does not fit"):
        engine.run({"row": np.ones((3, 2), np.float32)})


@pytest.mark.parametrize(
    ("constants", "error"),
    [
        ({"train": True}, "train: the model has no such input; it has bias, factor, "),
        ({"factor": True}, "factor = true: expected float32, a single value"),
        ({"factor": "1"}, 'factor = "1": expected float32, a single value'),
        ({"factor": [1, 2]}, "a single value; given shape (2,)"),
        ({"bias": 1}, "bias = 1: expected int32, shape (2,); given shape ()"),
        ({"bias": [1.5, 2]}, "bias = [1.5, 2]: expected int32, shape (2,)"),
        ({"bias": [1, 2**40]}, "expected int32, shape (2,)"),
        ({"bias": [[1], [1, 2]]}, "expected int32, shape (2,)"),
        (
            {"row": [[1, 2]], "factor": 1, "bias": [1, 2]},
            "signature serving_default has no other input: leave one for requests",
        ),
    ],
)
def test_constant_that_does_not_fit_is_a_load_error(constants, error):
    """One line has the input, the value, and what was expected."""
    with pytest.raises(ModelLoadError) as raised:
        wrapped(constants)
    assert str(raised.value).startswith("basket.toml: [constants]")
    assert error in str(raised.value)


def test_input_of_a_model_that_is_batched_can_not_be_a_constant():
    """Each of its rows has a value of its own."""
    with pytest.raises(ModelLoadError, match="a value for each row of a batch"):
        wrapped({"row": [1, 2]}, signature_of(row=("float32", [None, 2])))


def test_text_is_a_constant():
    """Strings are bytes, as in requests."""
    given = {}

    def keep(batch):
        given.update(batch)
        return {"out": batch["row"]}

    signature = signature_of(row=("float32", [None, 2]), words=("string", [2]))
    engine = wrapped({"words": ["a", "ß"]}, signature, keep)
    engine.run({"row": np.ones((1, 2), np.float32)})
    assert given["words"].tolist() == [[b"a", "ß".encode()]]
