"""What BASKET_ENGINE chooses, and how another engine's answers are judged."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from app import engines
from app.engines.base import Signature, TensorSpec
from app.engines.jax.batch_sizes import parts, resized
from app.engines.reading import first_line, refuse_text, row_spec
from app.engines.reference import Reference, read, write
from app.errors import ModelLoadError, SettingsError
from app.settings import Settings, checks
from tests.support.engines import Computes

FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)
SIGNATURE = Signature(
    (TensorSpec("row", FLOAT32, (None,)),),
    (TensorSpec("scores", FLOAT32, (2,)), TensorSpec("class/top", INT64, ())),
)
ROWS = {"row": np.ones((2, 3), np.float32)}
ANSWERS = {
    "scores": np.array([[0.5, 0.25], [0.125, 0.0]], np.float32),
    "class/top": np.array([0, 1]),
}


def _engine(**changed):
    return Computes(lambda _: ANSWERS | changed, SIGNATURE)


def _reference():
    return Reference(SIGNATURE, ROWS, ANSWERS, weight_bytes=8)


@pytest.fixture(autouse=True)
def _the_backend_stays(monkeypatch):
    """Opening an engine sets it, and it has to be as before for other tests."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")


@pytest.mark.parametrize("file", ["model.keras", "model.h5"])
@pytest.mark.parametrize("engine", ["tensorflow", "jax", "openvino"])
def test_the_setting_chooses_for_keras_files(tmp_path, monkeypatch, file, engine):
    """A Keras file runs on the engine that is set, by a module that is there."""
    imported = []

    def import_module(name):
        imported.append(name)
        raise ModelLoadError

    monkeypatch.setattr(engines, "import_module", import_module)
    (tmp_path / file).touch()
    with pytest.raises(ModelLoadError):
        engines.open_engine(tmp_path, Settings(engine=engine))
    assert imported == [f"app.engines.{engine}.keras_file"]
    folder = Path(engines.__file__).parent
    assert (folder / engine / "keras_file.py").is_file()


@pytest.mark.parametrize("file", ["model.keras", "saved_model.pb"])
@pytest.mark.parametrize(
    ("engine", "backend"),
    [("tensorflow", "tensorflow"), ("openvino", "tensorflow"), ("jax", "jax")],
)
def test_the_setting_alone_chooses_what_keras_runs_on(
    tmp_path, monkeypatch, file, engine, backend
):
    """Whatever the environment says, and whatever is loaded first and brings Keras."""
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    told = []

    def import_module(name):
        told.append(os.environ["KERAS_BACKEND"])
        raise ModelLoadError

    monkeypatch.setattr(engines, "import_module", import_module)
    (tmp_path / file).touch()
    with pytest.raises(ModelLoadError):
        engines.open_engine(tmp_path, Settings(engine=engine))
    assert told == [backend]


def test_other_files_run_as_ever(tmp_path, monkeypatch):
    """The setting is nothing to a SavedModel."""
    imported = []

    def import_module(name):
        imported.append(name)
        raise ModelLoadError

    monkeypatch.setattr(engines, "import_module", import_module)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ModelLoadError):
        engines.open_engine(tmp_path, Settings(engine="openvino"))
    assert imported == ["app.engines.tensorflow.saved_model"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n wrong size\n (2, 3)", "wrong size"),
        ("", "ValueError"),
        ("A failed.\n\nException encountered: B failed.\nC", "B failed."),
        ("x" * 1000, "x" * 300),
    ],
)
def test_an_error_in_a_line(text, line):
    """What a framework raised is told by one line: the cause, else its class."""
    assert first_line(ValueError(text)) == line


@pytest.mark.parametrize("engine", ["jax", "openvino"])
def test_an_engine_that_is_not_installed(monkeypatch, engine):
    """The start is refused, and the text says which file to install."""
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment({"BASKET_ENGINE": engine})
    assert str(raised.value) == (
        f"BASKET_ENGINE='{engine}': {engine} is not installed: "
        f"pip install --require-hashes -r requirements/{engine}.txt"
    )
    assert (Path(__file__).parents[3] / f"requirements/{engine}.txt").is_file()


@pytest.mark.parametrize("engine", ["tensorflow", "jax", "openvino"])
def test_an_engine_that_is_installed(monkeypatch, engine):
    """An engine whose package is there may be set."""
    monkeypatch.setattr(checks, "find_spec", lambda name: name)
    assert checks.engine(engine) == engine


def test_close_answers_are_logged(caplog):
    """The largest difference is logged where it is small, with its output."""
    near = ANSWERS["scores"] + np.float32(0.0004)
    with caplog.at_level(logging.INFO):
        _reference().check(_engine(scores=near))
    (line,) = caplog.messages
    assert line == (
        "function: scores differs from TensorFlow's by up to 8.0e-04 of its largest "
        "value"
    )


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        pytest.param(
            {"scores": ANSWERS["scores"] + np.float32(0.0006)},
            "scores differs from TensorFlow's by up to 1.2e-03 of its largest value, "
            "more than 0.001",
            id="a share of the largest",
        ),
        pytest.param(
            {"scores": ANSWERS["scores"] * np.nan},
            "scores differs from TensorFlow's by up to inf",
            id="NaN",
        ),
        pytest.param(
            {"class/top": np.array([0, 0])},
            "class/top differs from TensorFlow's by up to 5.0e-01",
            id="half of the classes",
        ),
        pytest.param(
            {"scores": ANSWERS["scores"][:1]},
            "scores differs from TensorFlow's by up to inf",
            id="fewer rows",
        ),
    ],
)
def test_other_answers_are_refused(changed, text):
    """An engine that answers otherwise is refused, with the output and by how much."""
    with pytest.raises(ModelLoadError) as raised:
        _reference().check(_engine(**changed))
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no such kernel", "no such kernel"),
        (
            "Exception encountered when calling Norm.call().\n\n\x1b[1mNo [-1].\nAt:"
            "\x1b[0m\n\nArguments received by Norm.call():\n  - x=jnp.ndarray",
            "Norm: No [-1].",
        ),
    ],
)
def test_an_engine_that_fails_is_refused(text, reason):
    """An engine that can't compute what TensorFlow can is refused with its reason.

    Of what Keras writes of a layer that is its class and the first line.
    """

    def fail(_):
        raise RuntimeError(text)

    with pytest.raises(ModelLoadError) as raised:
        _reference().check(Computes(fail, SIGNATURE))
    assert str(raised.value) == (
        f"fails on random rows that TensorFlow computes: {reason}"
    )


def test_a_reference_crosses_as_it_is(tmp_path):
    """What one process writes another reads: signature, rows and answers."""
    write(tmp_path, _reference())
    found = read(tmp_path, saved_model=True)
    assert found.signature == SIGNATURE
    assert found.weight_bytes == 8
    assert found.saved_model == tmp_path / "saved_model"
    np.testing.assert_array_equal(found.rows["row"], ROWS["row"])
    for name, array in ANSWERS.items():
        assert found.answers[name].dtype == array.dtype
        np.testing.assert_array_equal(found.answers[name], array)


@pytest.mark.parametrize(
    ("dtype", "outside"),
    [
        *(("float32", "float32"), ("bfloat16", "float32"), ("string", "object")),
        *(("bool", "bool"), ("uint8", "uint8"), ("float16", "float16")),
    ],
)
def test_dtypes(dtype, outside):
    """A tensor's dtype outside the model is one that clients can send and read."""
    assert row_spec("x", dtype, [3]) == TensorSpec("x", np.dtype(outside), (3,))


@pytest.mark.parametrize("dtype", ["complex64", "resource", "float8_e4m3fn", "qint8"])
def test_dtypes_that_are_not_served(dtype):
    """A dtype that no client knows is refused by its name."""
    with pytest.raises(ModelLoadError, match=f"x: {dtype} is not served"):
        row_spec("x", dtype, [3])


def test_text_is_refused():
    """An engine without text refuses a model that takes it, by the input's name."""
    word = TensorSpec("word", np.dtype(object), ())
    refuse_text(SIGNATURE)
    with pytest.raises(ModelLoadError, match="word is text"):
        refuse_text(Signature((word,), SIGNATURE.outputs))


@pytest.mark.parametrize(
    ("rows", "sizes", "expected"),
    [
        (1, [1, 2, 4], [(0, 1, 1)]),
        (3, [1, 2, 4], [(0, 3, 4)]),
        (4, [1, 2, 4], [(0, 4, 4)]),
        (9, [1, 2, 4], [(0, 4, 4), (4, 8, 4), (8, 9, 1)]),
        (3, [8], [(0, 3, 8)]),
    ],
)
def test_parts(rows, sizes, expected):
    """Rows run in the smallest size that holds them, more than the largest in parts."""
    assert list(parts(rows, sizes)) == expected


def test_a_batch_is_filled_up_with_its_last_row():
    """Padding repeats the last row, and a batch of the right size stays as it is."""
    rows = np.arange(6).reshape(3, 2)
    assert resized(rows, 5).tolist() == [[0, 1], [2, 3], [4, 5], [4, 5], [4, 5]]
    assert resized(rows, 3) is rows
