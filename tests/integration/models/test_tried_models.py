"""Models as users save them, on a real server, beside Keras's own answers."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from testing.server import ROOT
from testing.tried.models import TRIED
from testing.tried.serving import difference, serving
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
    assert bool(outcome.unbatched) == bool(model.unbatched)
    assert model.unbatched in outcome.unbatched


PADDING = [model for model in TRIED if model.name.startswith("texts_")]
CLIENTS, REQUESTS = 20, 100


def test_twenty_clients_get_the_answers_of_their_texts_alone(served):
    """2,000 answers to texts of 1 to 40 words, of models that pad and that mask."""

    def ask_all(client):
        random = np.random.default_rng(client)
        worst = 0.0
        for number in range(REQUESTS):
            model = PADDING[number % len(PADDING)]
            known = served.known[model.name]
            row = int(random.integers(len(known.rows)))
            reply = served.ask(model, {"instances": [known.rows[row]]})
            (answer,) = reply.json()["predictions"]
            far = difference(answer, known.answers[row]) / model.tolerance
            worst = max(worst, far)
        return worst

    with ThreadPoolExecutor(CLIENTS) as clients:
        assert max(clients.map(ask_all, range(CLIENTS))) <= 1


@_named([model for model in TRIED if model.refusal])
def test_refused_model_says_why(served, model):
    """The reason in /readyz says what to do, without a path."""
    refusal = served.outcome(model).refusal
    assert model.refusal in refusal
    assert "/tmp" not in refusal


def test_the_page_lists_exactly_these_models():
    """The table has each model, whether it works, and the reason if it does not."""
    rows = [row for row in documents.rows(PAGE) if re.match("yes|no: ", row[-2])]
    assert [row[:2] for row in rows] == [[each.title, each.form] for each in TRIED]
    for (*_, works, _), model in zip(rows, TRIED, strict=True):
        assert works.startswith("yes") is not bool(model.refusal)
        assert model.refusal in works
        assert ("not batched" in works) == bool(model.unbatched)
