"""Examples of requests, for people who look at a model."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from app.web.described import example_body
from app.codec import rows
from app.engines.base import DEFAULT_SIGNATURE, Signature
from tests.support.signatures import takes, takes_several

WORDS = ("O", 2)


def example(signature: Signature, **more):
    """Return the example of a model, with no service.py of its own."""
    model = {"signatures": {DEFAULT_SIGNATURE: signature}, "user_code": None}
    return example_body(SimpleNamespace(**{**model, "reads_instances": False, **more}))


def whole(signature):
    return dataclasses.replace(signature, takes_whole_tensors=True)


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (takes("f4", 2), {"instances": [[0.0, 0.0]]}),
        (takes("f4"), {"instances": [0.0]}),
        (takes("i8", None, 2), {"instances": [[[0, 0]]]}),
        (takes("?", 1), {"instances": [[False]]}),
        (takes("O"), {"instances": [""]}),
        (takes_several(a=("f4",), b=WORDS), {"instances": [{"a": 0.0, "b": ["", ""]}]}),
        (whole(takes("f4", 3)), {"inputs": [0.0, 0.0, 0.0]}),
        (whole(takes("f4")), {"inputs": 0.0}),
        (
            whole(takes_several(a=("f4",), b=WORDS)),
            {"inputs": {"a": 0.0, "b": ["", ""]}},
        ),
    ],
    ids=str,
)
def test_example_is_a_body_that_fits_the_signature(signature, expected):
    """Zeros in each input, as rows or as whole tensors, that the codec takes."""
    assert example(signature) == expected
    decoded = rows.decode(json.dumps(expected).encode(), {DEFAULT_SIGNATURE: signature})
    assert set(decoded.inputs) == {spec.name for spec in signature.inputs}
    for spec in signature.inputs:
        assert decoded.inputs[spec.name].dtype == spec.dtype


@pytest.mark.parametrize(
    ("signature", "more"),
    [
        (takes("f4", 64, 65), {}),
        (takes("c8", 2), {}),
        (takes("f4", 2), {"reads_instances": True}),
    ],
    ids=["too many values", "complex numbers", "a service.py"],
)
def test_model_without_a_sensible_example_has_none(signature, more):
    """Nobody edits thousands of values; JSON has no complex ones."""
    assert example(signature, **more) is None


def test_example_of_a_service_is_its_own():
    """EXAMPLE is one instance, whatever the model behind it takes."""
    service = SimpleNamespace(has_example=True)
    code = SimpleNamespace(service=service, example_json=lambda _: {"text": "hi"})
    found = example(takes("f4", 2), user_code=code, reads_instances=True)
    assert found == {"instances": [{"text": "hi"}]}
