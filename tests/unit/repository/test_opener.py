"""Warm-up of a version, and the choice of its runner."""

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.model_log import ModelLog
from app.batching.unbatched import Unbatched
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import (
    Late,
    ModelLoadError,
    NotYetLoadable,
    OutOfDeviceMemory,
    Unavailable,
)
from app.repository.opener import Opener, warm_up
from app.settings import Settings
from app.settings.model_config import ModelConfig
from tests.support.engines import Echo, Fails, OneValue, OutputMissing
from tests.support.jobs import Notes, answered, job

LOG = ModelLog("m", 1)
FLOAT32, STRING = np.dtype(np.float32), np.dtype(object)
NUMBER = TensorSpec("input", FLOAT32, (1,))


def _fails(error, *sizes, spec=NUMBER):
    """Return an engine that raises for batches of these sizes."""
    engine = Fails(error, *sizes)
    engine.signatures = {DEFAULT_SIGNATURE: Signature((spec,), ())}
    return engine


def _open(folder, engine, observer=None, **settings):
    """Open a version with an engine."""
    opener = Opener(lambda *_: observer or Notes(), lambda *_: engine)
    return opener.open("m", 1, folder, ModelConfig(Settings(**settings)))


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        pytest.param({"max_batch_size": 4}, [1, 4], id="1 and 4"),
        pytest.param({"max_batch_size": 1}, [1], id="only 1"),
        pytest.param(
            {"max_batch_size": 8, "allowed_batch_sizes": (2, 4, 8)}, [2, 4, 8], id="set"
        ),
    ],
)
def test_warm_up_runs_one_row_and_a_full_batch_or_each_allowed_size(
    tmp_path, limits, sizes
):
    """The sizes increase."""
    engine = Echo()
    _open(tmp_path, engine, **limits).runner.close(10)
    assert [len(batch) for batch in engine.batches] == sizes


def test_warm_up_returns_the_smallest_batch_of_each_working_signature():
    """A signature that fails on blank rows is left out."""
    good, bad = TensorSpec("good", FLOAT32, (1,)), TensorSpec("bad", STRING, (1,))

    class OneOfTwo(Echo):
        def run(self, batch, signature_name=DEFAULT_SIGNATURE):
            if "bad" in batch:
                raise ValueError("no empty strings")
            return {}

    engine = OneOfTwo()
    engine.signatures = {"a": Signature((good,), ()), "b": Signature((bad,), ())}
    known_good = warm_up(engine, (2, 4), LOG)
    assert {name: len(batch["good"]) for name, batch in known_good.items()} == {"a": 2}


def test_warm_up_rows_have_the_names_dtypes_and_shapes_of_each_signature():
    """Free sizes are 1."""
    given = {}

    class Wants(Echo):
        def run(self, batch, signature_name=DEFAULT_SIGNATURE):
            given[signature_name] = batch
            return {}

    engine = Wants()
    image = TensorSpec("image", np.dtype(np.uint8), (2, None, 3))
    scale = TensorSpec("scale", np.dtype(np.float64), ())
    words = TensorSpec("words", STRING, (2,))
    engine.signatures = {
        "picture": Signature((image, scale), ()),
        "text": Signature((words,), ()),
    }
    warm_up(engine, (1, 5), LOG)
    looks = {
        name: {key: (rows.dtype, rows.shape) for key, rows in batch.items()}
        for name, batch in given.items()
    }
    assert looks == {
        "picture": {"image": (np.uint8, (5, 2, 1, 3)), "scale": (np.float64, (5,))},
        "text": {"words": (STRING, (5, 2))},
    }
    assert set(given["text"]["words"].flat) == {b""}


@pytest.mark.parametrize("size", [1, 4], ids=["one row", "full batch"])
def test_warm_up_failure_on_rows_of_zeros_is_a_load_error(size):
    """A model that raises on blank rows of fixed shape is not served."""
    with pytest.raises(ModelLoadError, match=rf"{size} rows of zeros \(ValueError\)"):
        warm_up(_fails(ValueError("secret"), size), (1, 4), LOG)


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        pytest.param(OneValue, "gave 0 rows of 'output' for 1 rows", id="one value"),
        pytest.param(OutputMissing, "gave no output 'output'", id="missing"),
    ],
)
def test_warm_up_with_wrong_outputs_is_a_load_error(engine, text):
    """A model without one output row per input row is not served."""
    specs = [(TensorSpec(name, FLOAT32, (1,)),) for name in ("input", "output")]
    wrong = engine()
    wrong.signatures = {DEFAULT_SIGNATURE: Signature(*specs)}
    with pytest.raises(ModelLoadError, match=text):
        warm_up(wrong, (1, 4), LOG)


@pytest.mark.parametrize(
    "spec",
    [TensorSpec("input", STRING, (1,)), TensorSpec("input", FLOAT32, (None,))],
    ids=["strings", "free size"],
)
def test_warm_up_failure_on_strings_or_free_sizes_is_a_warning(spec, caplog):
    """Blank rows may be invalid there, so the model is served."""
    warm_up(_fails(ValueError("secret"), 1, 4, spec=spec), (1, 4), LOG)
    assert "model m version 1: warm-up of serving_default" in caplog.text
    assert "rows of zeros (ValueError); clients may do better" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("error", [Unavailable("away"), Late("away")])
def test_warm_up_without_an_answer_of_the_server_is_retried(error):
    """The error says that the load may succeed later."""
    with pytest.raises(NotYetLoadable, match=r"^away$"):
        warm_up(_fails(error, 1), [1], LOG)


def test_warm_up_out_of_memory_with_a_full_batch_is_tolerated():
    """The model is served."""
    warm_up(_fails(OutOfDeviceMemory("4 rows do not fit"), 4), (1, 4), LOG)


@pytest.mark.parametrize(
    ("size", "text"), [(1, "not even one row"), (2, "not even a batch of 2 rows")]
)
def test_warm_up_out_of_memory_with_the_smallest_batch_is_a_load_error(size, text):
    """A model whose memory is too small for its smallest size is not served."""
    with pytest.raises(ModelLoadError, match=f"{text} fits: too large"):
        warm_up(_fails(OutOfDeviceMemory("too large"), size), (size, 4), LOG)


@pytest.mark.parametrize(
    "error", [ValueError("secret"), SystemExit("secret")], ids=["exception", "exit"]
)
def test_engine_is_closed_after_a_failed_warm_up(tmp_path, error):
    """Any exception of the model closes its engine."""
    engine = _fails(error, 1)
    with pytest.raises((ModelLoadError, SystemExit)):
        _open(tmp_path, engine)
    assert engine.closed == 1


def test_engine_is_closed_if_no_thread_can_be_started(tmp_path, monkeypatch):
    """The error is raised."""

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Batcher, "start", start)
    engine = Echo()
    with pytest.raises(RuntimeError):
        _open(tmp_path, engine)
    assert engine.closed == 1


@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        pytest.param({}, 4, id="batching"),
        pytest.param({"batching": False}, 4 * 16, id="unbatched"),
        pytest.param(
            {"batching": False, "allowed_batch_sizes": (2, 4)}, 4, id="allowed sizes"
        ),
    ],
)
def test_observer_gets_the_batch_ceiling(tmp_path, limits, rows):
    """The ceiling is set with batching and without."""
    notes = Notes()
    settings = {"max_batch_size": 4, "max_enqueued_batches": 16, **limits}
    _open(tmp_path, Echo(), notes, **settings).runner.close(10)
    assert notes.limits == [rows]


@pytest.mark.parametrize(
    ("batching", "kind"), [(True, Batcher), (False, Unbatched)], ids=["on", "off"]
)
def test_batching_setting_selects_the_runner(tmp_path, batching, kind):
    """Both runners answer a job of many rows."""
    runner = _open(tmp_path, Echo(), batching=batching, max_batch_size=4).runner
    assert isinstance(runner, kind)
    one = job(*range(4 * Settings().max_enqueued_batches))
    runner.submit(one)
    assert len(answered(one)) == one.rows
    runner.close(10)


@pytest.mark.parametrize("batching", [True, False], ids=["batching", "unbatched"])
def test_requests_are_padded_to_allowed_batch_sizes(tmp_path, batching):
    """Warm-up and requests use these sizes only."""
    engine = Echo()
    settings = {"max_batch_size": 4, "allowed_batch_sizes": (2, 4)}
    runner = _open(tmp_path, engine, batching=batching, **settings).runner
    one = job(1)
    runner.submit(one)
    assert answered(one) == [1]
    assert [len(batch) for batch in engine.batches] == [2, 4, 2]
    runner.close(10)
