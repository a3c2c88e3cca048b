"""Models as users save them, on a real server, beside Keras's own answers."""

import re

import pytest

from testing.server import ROOT
from testing.tried.models import TRIED
from testing.tried.serving import serving
from tests.support import documents
from tests.support.marks import USES_TENSORFLOW

pytestmark = [
    *USES_TENSORFLOW,
    # Keras advises against .h5.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
PAGE = ROOT / "docs" / "models_tried.md"


@pytest.fixture(scope="module")
def served(keras, tf):
    """Serve all models."""
    with serving(TRIED, keras, tf) as models:
        yield models


def _named(models):
    return pytest.mark.parametrize("model", models, ids=lambda model: model.name)


@_named([model for model in TRIED if not model.refusal])
def test_served_model_answers_as_keras_does(served, model):
    """Rows in one request and a row alone have the answers of predict."""
    outcome = served.outcome(model)
    assert not outcome.refusal
    assert outcome.difference <= model.tolerance


@_named([model for model in TRIED if model.refusal])
def test_refused_model_says_why(served, model):
    """The reason in /readyz says what to do, without a path."""
    refusal = served.outcome(model).refusal
    assert model.refusal in refusal
    assert "/tmp" not in refusal


def test_the_page_lists_exactly_these_models():
    """The table has each model, whether it works, and the reason if it does not."""
    rows = [row for row in documents.rows(PAGE) if re.match("yes$|no: ", row[-2])]
    assert [row[:2] for row in rows] == [[each.title, each.form] for each in TRIED]
    for (*_, works, _), model in zip(rows, TRIED, strict=True):
        assert (works == "yes") is not bool(model.refusal)
        assert model.refusal in works
