"""Models of other frameworks, served by the code that docs/user_code.md shows."""

from importlib import import_module

import joblib
import pytest

from testing.server import ROOT
from tests.support.documents import blocks
from tests.support.user_code import add_service, predict, serving_code


def _codes(package):
    """Return the blocks of the page that import a package."""
    return [
        block
        for block in blocks(ROOT / "docs" / "user_code.md", "python")
        if f"import {package}\n" in block
    ]


@pytest.mark.parametrize("mode", ["worker", "shared"])
def test_code_of_the_docs_serves_scikit_learn(tmp_path, mode):
    """Answers are those of the package itself."""
    # Here, as its import takes most of a second, in each process that collects tests.
    datasets = import_module("sklearn.datasets")
    linear_model = import_module("sklearn.linear_model")
    rows, classes = datasets.load_iris(return_X_y=True)
    model = linear_model.LogisticRegression(max_iter=1000).fit(rows, classes)
    (code,) = _codes("joblib")
    iris = add_service(tmp_path, "iris", code)
    joblib.dump(model, iris / "iris.joblib")
    with serving_code(tmp_path, model_process=mode) as server:
        answer = predict(server, "iris", rows.tolist())
    assert answer == (200, model.predict(rows).tolist())


def test_code_of_the_docs_for_pytorch_compiles():
    """PyTorch is not among the development packages, so the code is not run.

    The second is the example of service-streamer.
    """
    alone, moved = _codes("torch")
    for code in (alone, moved):
        compile(code, "service.py", "exec")
    assert "densenet121" in moved
