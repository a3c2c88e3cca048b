"""Warming up, and the runner that a model gets."""

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


def _wants(*specs, engine=None):
    engine = engine or Echo()
    engine.signatures = {DEFAULT_SIGNATURE: Signature(specs, ())}
    return engine


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
def test_warm_up_runs_the_sizes_that_matter(tmp_path, limits, sizes):
    """A model is warmed up with one row and a full batch, or with each allowed size."""
    engine = Echo()
    opener = Opener(lambda *_: Notes(), lambda *_: engine)
    served = opener.open("m", 1, tmp_path, ModelConfig(Settings(**limits)))
    served.runner.close(10)
    assert [len(batch) for batch in engine.batches] == sizes


def test_warm_up_tells_what_a_model_computes():
    """What comes back is the smallest batch of each signature that ran well."""
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


def test_warm_up_feeds_what_each_signature_wants():
    """Each signature gets its inputs' names, dtypes and shapes; free sizes are 1."""
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
def test_a_model_that_fails_on_rows_of_zeros_is_refused(size):
    """A model that raises on blank rows of a fixed shape is not served."""
    with pytest.raises(ModelLoadError, match=rf"{size} rows of zeros \(ValueError\)"):
        warm_up(
            _wants(
                TensorSpec("input", FLOAT32, (1,)),
                engine=Fails(ValueError("secret"), size),
            ),
            (1, 4),
            LOG,
        )


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        pytest.param(OneValue, "gave 0 rows of 'output' for 1 rows", id="one value"),
        pytest.param(OutputMissing, "gave no output 'output'", id="missing"),
    ],
)
def test_a_model_that_does_not_give_its_outputs_is_refused(engine, text):
    """A model whose outputs are no rows, or not those it names, is not served."""
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
def test_a_model_may_refuse_rows_that_are_made_up(spec, caplog):
    """A model that raises on empty strings or sizes of 1 is served, with a warning."""
    warm_up(_wants(spec, engine=Fails(ValueError("secret"), 1, 4)), (1, 4), LOG)
    assert "model m version 1: warm-up of serving_default" in caplog.text
    assert "rows of zeros (ValueError); clients may do better" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("error", [Unavailable("away"), Late("away")])
def test_a_model_whose_server_is_away_may_come(error):
    """A warm-up that another server does not answer now can be tried again."""
    with pytest.raises(NotYetLoadable, match=r"^away$"):
        warm_up(
            _wants(TensorSpec("input", FLOAT32, (1,)), engine=Fails(error, 1)), [1], LOG
        )


def test_a_full_batch_that_does_not_fit_is_tolerated():
    """A model whose memory is too small for a full batch is served all the same."""
    warm_up(Fails(OutOfDeviceMemory("4 rows do not fit"), 4), (1, 4), LOG)


def test_a_row_that_does_not_fit_is_not_tolerated():
    """A model whose memory is too small for one row is refused and says so."""
    engine = _wants(
        TensorSpec("input", FLOAT32, (1,)),
        engine=Fails(OutOfDeviceMemory("1 row does not fit"), 1),
    )
    with pytest.raises(ModelLoadError, match="not even one row fits: 1 row does not"):
        warm_up(engine, (1, 4), LOG)


def test_a_smallest_size_that_does_not_fit_is_not_tolerated():
    """A model whose memory is too small for the smallest allowed size is refused."""
    engine = _wants(
        TensorSpec("input", FLOAT32, (1,)),
        engine=Fails(OutOfDeviceMemory("2 rows do not"), 2),
    )
    with pytest.raises(ModelLoadError, match="not even a batch of 2 rows fits: 2 rows"):
        warm_up(engine, (2, 4), LOG)


@pytest.mark.parametrize(
    "error", [ValueError("secret"), SystemExit("secret")], ids=["exception", "exit"]
)
def test_an_engine_that_can_not_be_warmed_is_closed(tmp_path, error):
    """Whatever a model raises in its warm-up, its engine is closed."""
    engine = _wants(TensorSpec("input", FLOAT32, (1,)), engine=Fails(error, 1))
    opener = Opener(lambda *_: Notes(), lambda *_: engine)
    with pytest.raises((ModelLoadError, SystemExit)):
        opener.open("flowers", 1, tmp_path, ModelConfig(Settings()))
    assert engine.closed == 1


def test_an_engine_without_a_thread_is_closed(tmp_path, monkeypatch):
    """Where no thread can be started for a model, its engine is closed."""

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Batcher, "start", start)
    engine = Echo()
    opener = Opener(lambda *_: Notes(), lambda *_: engine)
    with pytest.raises(RuntimeError):
        opener.open("flowers", 1, tmp_path, ModelConfig(Settings()))
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
def test_the_largest_batch_that_may_run_is_shown(tmp_path, limits, rows):
    """The observer is told how many rows a batch may have, without batching too."""
    notes = Notes()
    opener = Opener(lambda *_: notes, lambda *_: Echo())
    settings = Settings(max_batch_size=4, max_enqueued_batches=16, **limits)
    model = opener.open("flowers", 1, tmp_path, ModelConfig(settings))
    model.runner.close(10)
    assert notes.limits == [rows]


@pytest.mark.parametrize(
    ("batching", "kind"), [(True, Batcher), (False, Unbatched)], ids=["on", "off"]
)
def test_batching_can_be_turned_off(tmp_path, batching, kind):
    """BASKET_BATCHING decides which kind of runner a model gets."""
    settings = Settings(batching=batching, max_batch_size=4)
    opener = Opener(lambda *_: Notes(), lambda *_: Echo())
    model = opener.open("flowers", 1, tmp_path, ModelConfig(settings))
    assert isinstance(model.runner, kind)
    one = job(*range(4 * settings.max_enqueued_batches))
    model.runner.submit(one)
    assert len(answered(one)) == one.rows
    model.runner.close(10)


@pytest.mark.parametrize("batching", [True, False], ids=["batching", "unbatched"])
def test_a_model_runs_its_allowed_sizes_only(tmp_path, batching):
    """A model with allowed sizes is warmed with each, and its requests filled up."""
    settings = Settings(batching=batching, max_batch_size=4, allowed_batch_sizes=(2, 4))
    engine = Echo()
    opener = Opener(lambda *_: Notes(), lambda *_: engine)
    model = opener.open("flowers", 1, tmp_path, ModelConfig(settings))
    one = job(1)
    model.runner.submit(one)
    assert answered(one) == [1]
    assert [len(batch) for batch in engine.batches] == [2, 4, 2]
    model.runner.close(10)
