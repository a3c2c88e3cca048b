"""Warm-up of a version, and the choice of its runner."""

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.unbatched import Unbatched
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import ModelLoadError
from app.repository.loading.opener import Opener
from app.settings import Settings
from app.settings.model_config import ModelConfig
from tests.support.engines import Echo, Fails
from tests.support.jobs import Notes, answered, job

FLOAT32 = np.dtype(np.float32)


def _of_one_number(engine):
    """Return the engine with an input and an output of one number."""
    specs = [(TensorSpec(name, FLOAT32, (1,)),) for name in ("input", "output")]
    engine.signatures = {DEFAULT_SIGNATURE: Signature(*specs)}
    return engine


def _open(folder, engine, observer=None, **settings):
    """Open a version with an engine."""
    opener = Opener(lambda *_: observer or Notes(), lambda *_: engine)
    return opener.open("m", 1, folder, ModelConfig(Settings(**settings)))


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        pytest.param({"max_batch_size": 4}, [1, 1, 1, 4], id="1 and 4"),
        pytest.param({"max_batch_size": 1}, [1], id="only 1"),
        pytest.param(
            {"max_batch_size": 8, "allowed_batch_sizes": (2, 4, 8)},
            [2, 2, 2, 4, 8],
            id="set",
        ),
    ],
)
def test_warm_up_runs_one_row_and_a_full_batch_or_each_allowed_size(
    tmp_path, limits, sizes
):
    """The sizes increase; three rows run alone."""
    engine = _of_one_number(Echo())
    _open(tmp_path, engine, **limits).runner.close(10)
    assert [len(batch) for batch in engine.batches] == sizes


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        pytest.param(
            {"max_batch_size": 64}, [1, 64, 1, 1, 1, 4, 1, 1, 1, 4], id="1 and 64"
        ),
        pytest.param({"max_batch_size": 2}, [1, 2, 1, 1, 2, 1, 1, 2], id="1 and 2"),
        pytest.param({"max_batch_size": 1}, [1, 1, 1], id="only 1"),
        pytest.param(
            {"max_batch_size": 9, "allowed_batch_sizes": (3, 6, 9)},
            [3, 6, 9, 3, 3, 3, 6, 3, 3, 3, 6],
            id="set",
        ),
    ],
)
def test_warm_up_of_free_sizes_compares_rows_in_small_batches(tmp_path, limits, sizes):
    """Rows of two sizes run alone and in batches of 4, or the next allowed size."""
    engine = Echo()
    _open(tmp_path, engine, **limits).runner.close(10)
    assert [len(batch) for batch in engine.batches] == sizes
    assert list(dict.fromkeys(batch.shape[1] for batch in engine.batches)) == [
        1,
        32,
        64,
    ]


@pytest.mark.parametrize(
    "error", [ValueError("secret"), SystemExit("secret")], ids=["exception", "exit"]
)
def test_engine_is_closed_after_a_failed_warm_up(tmp_path, error):
    """Any exception of the model closes its engine."""
    engine = _of_one_number(Fails(error, 1))
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
    engine = _of_one_number(Echo())
    settings = {"max_batch_size": 4, "allowed_batch_sizes": (2, 4)}
    runner = _open(tmp_path, engine, batching=batching, **settings).runner
    one = job(1)
    runner.submit(one)
    assert answered(one) == [1]
    assert [len(batch) for batch in engine.batches] == [2, 2, 2, 4, 2]
    runner.close(10)
