"""`models quantize`, as far as no framework is wanted; and who agrees with whom."""

import json

import numpy as np
import pytest

from app.commands.agreement import compare
from app.engines.base import Signature, TensorSpec
from tests.support.commands import run_models
from tests.support.engines import Computes

NO_KERAS_FILE = "no model.keras or model.h5: only Keras files are"


@pytest.fixture
def command(tmp_path):
    """Runs `models quantize` on a folder that has a simulated model `a`."""
    version = tmp_path / "a" / "1"
    version.mkdir(parents=True)
    (version / "simulated.json").write_text(json.dumps({"base_ms": 0}))

    def run(*args):
        status, output = run_models(tmp_path, "quantize", *args)
        assert status != 0
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["1"]
        return status, output.splitlines()[-1]

    return run


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        (["a"], 2, "say to what; there is: --int8"),
        (["c", "--int8"], 1, "no model 'c'; there are: a"),
        (["a", "--int8", "--version", "7"], 1, "model 'a' has no version 7; it has: 1"),
        (["a", "--int8"], 1, f"version 1 holds {NO_KERAS_FILE} quantised"),
    ],
)
def test_what_cannot_be_quantised_is_named(command, args, status, error):
    """Each wrong call is an error of one line, before a framework is started."""
    assert command(*args) == (status, f"Error: {error}")


def agreed(wanted, given, dtype=np.float32):
    """What is found of two models that answer with these rows, in batches of 2."""
    wanted, given = (np.array(each, dtype) for each in (wanted, given))
    signature = Signature(
        (TensorSpec("row", np.dtype(int), ()),),
        (TensorSpec("y", np.dtype(dtype), wanted.shape[1:]),),
    )
    engines = [
        Computes(lambda batch, rows=rows: {"y": rows[batch["row"]]}, signature)
        for rows in (wanted, given)
    ]
    numbers = np.arange(len(wanted))
    batches = [{"row": numbers[n : n + 2]} for n in range(0, len(wanted), 2)]
    (found,) = compare(*engines, batches)
    return found


def test_scores_agree_on_the_top_class():
    """Scores count by their top class, row by row, over all batches."""
    found = agreed([[1, 2], [2, 1], [0, 4]], [[1, 3], [1, 2], [0, 3]])
    assert (found.agreeing, found.rows, found.difference) == (2, 3, 1.0)
    assert found.share() == pytest.approx(2 / 3)
    assert found.answers == 2
    assert found.describe() == (
        "y: the same top class in 66.67 % of 3 rows, largest difference 1"
    )


def test_no_answer_agrees_with_nothing():
    """A row with a NaN does not agree, even if its top class is the same."""
    assert agreed([[1, 2], [1, 2]], [[np.nan, 3], [1, 3]]).agreeing == 1


def test_other_floats_agree_within_a_hundredth():
    """Other floats count by their distance, against the output's largest value."""
    found = agreed([[100], [1], [3]], [[99.5], [2], [5]])
    assert (found.agreeing, found.rows, found.difference) == (2, 3, 2.0)
    assert "values within 1% of the largest" in found.describe()
    assert found.answers is None


def test_all_else_agrees_where_it_is_equal():
    """Integers and the like count where all of a row is equal."""
    found = agreed([[1, 2], [3, 4]], [[1, 2], [3, 5]], np.int64)
    assert (found.agreeing, found.rows) == (1, 2)
