"""What self-checkouts send follows what the server says that its model takes."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from testing.payload import (
    Payload,
    PayloadError,
    Pictures,
    basket_payload,
    basket_signature,
    tf_serving_signature,
)
from tests.support.signatures import takes_several


def ready(*inputs):
    model = {"version": "1", "inputs": list(inputs)}
    return {"status": "ready", "default_model": "m", "models": {"m": model}}


def metadata(**inputs):
    tensors = {
        name: {
            "dtype": dtype,
            "tensor_shape": {
                "dim": [{"size": str(size), "name": ""} for size in sizes],
                "unknown_rank": False,
            },
            "name": f"serving_default_{name}:0",
        }
        for name, (dtype, *sizes) in inputs.items()
    }
    outputs = {"y": {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}]}}}
    signature = {"inputs": tensors, "outputs": outputs, "method_name": "predict"}
    return {
        "model_spec": {"name": "m", "signature_name": "", "version": "3"},
        "metadata": {
            "signature_def": {"signature_def": {"serving_default": signature}}
        },
    }


def row(**inputs):
    (only,) = json.loads(Payload(takes_several(**inputs), 1).body())["instances"]
    return only


def shape_of(value):
    return (len(value), *shape_of(value[0])) if isinstance(value, list) else ()


def test_the_default_models_inputs_are_read_from_readyz():
    """Name, dtype and shape come from /readyz, a free size as None."""
    given = ready({"name": "image", "dtype": "float32", "shape": [None, 8, 1]})
    expected = takes_several(image=("float32", None, 8, 1)).inputs
    assert basket_signature(given).inputs == expected


def test_tensorflow_servings_metadata_is_read():
    """Its types get NumPy's names, -1 is a free size and the batch is left out."""
    given = metadata(image=("DT_FLOAT", -1, 8, -1), n=("DT_INT64", -1))
    expected = takes_several(image=("float32", 8, None), n=("int64",)).inputs
    assert tf_serving_signature(given).inputs == expected


def test_a_model_that_takes_pictures_gets_pictures():
    """Where /readyz tells of pictures, JPEGs are sent, not all of them the same."""
    given = ready({"name": "image", "dtype": "float32", "shape": [8, 8, 1]})
    assert basket_payload(given).content_type == "application/json"
    given["models"]["m"]["image"] = {"size": [8, 8], "mode": "L"}
    payload = basket_payload(given)
    assert payload.content_type == "image/jpeg"
    bodies = [payload.body() for _ in range(40)]
    assert 5 < len(set(bodies)) <= 16
    for body in set(bodies):
        with Image.open(io.BytesIO(body), formats=["JPEG"]) as image:
            assert image.size == (640, 480)
            assert np.asarray(image).std() > 10


def test_the_same_seed_gives_the_same_pictures():
    """Two makers of pictures with one seed send the same, one after the other."""
    first, again = Pictures(7), Pictures(7)
    assert [first.body() for _ in range(9)] == [again.body() for _ in range(9)]


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "ready", "models": {"m": "1"}},
        {"status": "ready", "default_model": "m", "models": {"m": "1"}},
        {"default_model": "m", "models": {}},
        [],
        ready(),
        ready({"name": "z", "dtype": "complex64", "shape": [1]}),
    ],
)
def test_an_answer_without_usable_inputs_is_refused(answer):
    """A /readyz that does not name inputs that can be made raises PayloadError."""
    with pytest.raises(PayloadError):
        basket_signature(answer)


@pytest.mark.parametrize(
    "answer", [{"error": "no such model"}, metadata(), metadata(x=("DT_VARIANT", -1))]
)
def test_metadata_without_usable_inputs_is_refused(answer):
    """Metadata that does not name inputs that can be made raises PayloadError."""
    with pytest.raises(PayloadError):
        tf_serving_signature(answer)


def test_one_input_is_sent_as_the_bare_row():
    """A body for one float input is one row of its shape with values below 1."""
    values = row(image=("float32", 8, 8, 1))
    assert shape_of(values) == (8, 8, 1)
    assert 0 <= values[0][0][0] < 1


def test_several_inputs_are_sent_as_an_object():
    """A body for several inputs has one value of the right type for each name."""
    values = row(
        ids=("int32", None), flag=("bool",), word=("O", 2), half=("float16", 3)
    )
    assert list(values) == ["ids", "flag", "word", "half"]
    assert set(values["ids"]) == {0, 1}
    assert isinstance(values["flag"], bool)
    assert [type(word) for word in values["word"]] == [str, str]
    assert shape_of(values["half"]) == (3,)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "O"])
def test_a_row_without_dimensions_is_a_single_value(dtype):
    """For an input of shape () the row is a bare value and not a list."""
    assert not isinstance(row(x=(dtype,)), list)


def test_each_request_has_a_new_row():
    """Two bodies of one Payload differ, and the same seed gives the same bodies."""
    signature = takes_several(x=("float32", 4))
    first, again = Payload(signature, 7), Payload(signature, 7)
    bodies = [first.body(), first.body()]
    assert bodies[0] != bodies[1]
    assert bodies == [again.body(), again.body()]
