"""The table of models that were tried."""

from bench.models_tried import lines
from testing.tried.case import KERAS, Tried
from testing.tried.saving import Known
from testing.tried.serving import Outcome


def _tried(title):
    return Tried(title, title, KERAS, lambda saving: Known((), ()))


def test_each_model_has_a_line_with_its_difference_or_reason():
    """Differences have one digit, and a reason no end of a table's cell."""
    outcomes = {
        _tried("near"): Outcome("", 2.345e-7),
        _tried("equal"): Outcome("", 0.0),
        _tried("refused"): Outcome("a | b"),
    }
    assert list(lines(outcomes))[2:] == [
        "| near | `.keras` | yes | 2e-07 |",
        "| equal | `.keras` | yes | 0 |",
        "| refused | `.keras` | no: a \\| b |  |",
    ]
