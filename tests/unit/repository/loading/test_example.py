"""EXAMPLE of a service.py, run when a version is opened."""

import numpy as np
import pytest

from app.batching.model_log import ModelLog
from app.engines import open_engine
from app.errors import ModelLoadError
from app.repository.loading.example import run_example
from app.settings import Settings
from app.user_code.user_code import UserCode


@pytest.fixture
def run(tmp_path):
    """Run the EXAMPLE of a service.py in batches of these sizes."""

    def run(text, sizes=(1, 4)):
        (tmp_path / "service.py").write_text(text)
        engine = open_engine(tmp_path, Settings(user_code=True))
        log = ModelLog("m", 1)
        code = UserCode(engine.service, engine.signatures, log, is_packed=False)
        return run_example(engine, code, sizes)

    return run


def test_example_runs_in_all_sizes_and_the_smallest_is_kept(run, tmp_path):
    """All functions see it; the smallest batch is known to be good."""
    text = f"""
EXAMPLE = "a"
def preprocess(instance): return instance * 2
def predict(model, batch):
    with open({str(tmp_path / "log")!r}, "a") as file:
        print(batch, file=file)
    return batch
def postprocess(row): return row
"""
    (batch,) = run(text).values()
    np.testing.assert_array_equal(batch["instance"], np.array(["aa"], object))
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == [str(["aa"]), str(["aa"] * 4)]


def test_rows_of_a_batch_are_objects_of_their_own(run):
    """Predict may change each."""
    (batch,) = run(
        """
EXAMPLE = {"x": 1}
def predict(model, batch): return [row.pop("x") for row in batch]
"""
    ).values()
    assert batch["instance"].tolist() == [{"x": 1}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "def predict(m, b): return b[0]['x']",
            "service.py: predict failed (TypeError): TypeError: 'int' object is not "
            "subscriptable (line 2)",
        ),
        (
            "def preprocess(i): raise KeyError(i)\ndef predict(m, b): return b",
            "service.py: preprocess failed on EXAMPLE[0] (KeyError): KeyError: 5 (line "
            "2)",
        ),
        ("def predict(m, b): return b[1:]", "predict gave 0 answers for 1 rows"),
        ("def predict(m, b): return [{1}] * len(b)", "predict gave what JSON can't"),
    ],
)
def test_example_that_fails_is_a_load_error_with_the_reason(run, text, reason):
    """The operator reads the function, the error and the line."""
    with pytest.raises(ModelLoadError) as raised:
        run(f"EXAMPLE = 5\n{text}")
    assert str(raised.value).startswith("its EXAMPLE: ")
    assert reason in str(raised.value)
