"""Reloads of served versions whose basket.toml has changed."""

import json
import threading

import numpy as np
import pytest

from app.engines.base import Signature, TensorSpec
from app.errors import ModelLoadError, NotYetLoadable
from app.repository.routing import Target
from app.settings.model_config import CaptureConfig
from testing.server import wait_until
from tests.support.clocks import standing_clock
from tests.support.engines import Blocks, Computes, Echo
from tests.support.jobs import answered, job
from tests.support.loading import TIMEOUT_S, Loading

FLOAT32 = np.dtype(np.float32)
IMAGE = '[image]\nsize = [4, 4]\nmode = "L"\nscale = "0..1"\n'
NOT_IN_EFFECT = (
    "version 1 serves with basket.toml as it was before, and could not be loaded again:"
)


@pytest.fixture(name="loading")
def _loading(tmp_path):
    """A model m, whose version 1 is served."""
    loading = Loading(tmp_path)
    loading.first = loading.add("m")
    loading.load()
    yield loading
    loading.close()


def _pictures():
    """Return an engine that takes gray pictures of 4 x 4 and has 2 classes."""
    signature = Signature(
        (TensorSpec("picture", FLOAT32, (4, 4, 1)),),
        (TensorSpec("class", FLOAT32, (2,)),),
    )
    return Computes(
        lambda batch: {"class": np.zeros((len(batch["picture"]), 2), FLOAT32)},
        signature,
    )


def _config(loading):
    (served,) = loading.catalog.models()
    return served.config


def test_changed_limits_load_the_version_again(loading, caplog):
    """The old engine is closed, and no error is logged or shown."""
    new = loading.engines["m", "1"] = Echo()
    loading.configure("m", "max_batch_size = 2")
    for _ in range(2):
        loading.rescan()
    assert (loading.first.closed, new.closed) == (1, 0)
    assert loading.answers("m") == 1
    assert _config(loading).settings.max_batch_size == 2
    assert loading.opened == [("m", "1")] * 2
    assert loading.catalog.problems() == {}
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_changed_labels_load_nothing(loading):
    """They are routes, which follow at once."""
    loading.configure("m", "[labels]\nstable = 1")
    loading.rescan()
    assert loading.answers("m", label="stable") == 1
    assert loading.opened == [("m", "1")]


def _capture(loading):
    """Return how the next request is captured."""
    version, model = loading.catalog.take(Target("m"))
    loading.catalog.give_back([version])
    return model.capture


def test_changed_capture_loads_nothing(tmp_path):
    """It counts for the next request."""
    loading = Loading(tmp_path, capture_dir=tmp_path)
    loading.add("m")
    loading.load()
    for text, capture in (
        ("[capture]\nshare = 0.5", CaptureConfig(0.5)),
        ("[capture]\nkeep_mb = 1", CaptureConfig(0.01, 1)),
        ("[capture]\nshare = 0", None),
    ):
        loading.configure("m", text)
        loading.rescan()
        assert _capture(loading) == capture
    assert loading.opened == [("m", "1")]
    assert loading.catalog.problems() == {}
    loading.close()


def test_capture_without_a_folder_is_a_problem(loading):
    """The model serves, and nothing is captured."""
    loading.configure("m", "[capture]")
    loading.rescan()
    assert loading.answers("m") == 1
    assert _capture(loading) is None
    (problem,) = loading.catalog.problems()["m"]
    assert "BASKET_CAPTURE_DIR is not set" in problem


def test_added_image_takes_effect(loading):
    """A changed file of classes does, too."""
    loading.engines["m", "1"] = _pictures()
    classes = loading.folder / "m" / "classes.json"
    for names in (["cat", "dog"], ["Katze", "Hund"]):
        classes.write_text(json.dumps(names))
        loading.configure("m", f'{IMAGE}classes = "classes.json"\n')
        loading.rescan()
        assert [each.name for each in _config(loading).image.classes] == names
    assert loading.catalog.problems() == {}


def test_image_that_does_not_fit_leaves_the_version_serving(loading, caplog):
    """The reason is shown and logged once, until basket.toml changes again."""
    refused = loading.engines["m", "1"] = Echo()
    loading.configure("m", IMAGE)
    problem = f"{NOT_IN_EFFECT} [image] makes rows (4, 4, 1), the model takes (any,)"
    for _ in range(2):
        loading.rescan()
        assert loading.catalog.problems() == {"m": [problem]}
    assert caplog.messages.count(f"model m: {problem}") == 1
    assert loading.catalog.not_ready() == {}
    assert loading.answers("m") == 1
    assert (loading.first.closed, refused.closed) == (0, 1)
    assert len(loading.opened) == 2
    loading.configure("m", "")
    loading.rescan()
    assert loading.catalog.problems() == {}
    assert len(loading.opened) == 2


@pytest.mark.parametrize("error", [ModelLoadError("no"), ValueError("secret")])
def test_failed_reload_is_tried_again_by_a_load_request(loading, error):
    """Scans do not try it again."""
    loading.engines["m", "1"] = error
    loading.configure("m", "max_batch_size = 2")
    for _ in range(2):
        loading.rescan()
    reason = "no" if isinstance(error, ModelLoadError) else "failed to load (ValueErr"
    (problem,) = loading.catalog.problems()["m"]
    assert problem.startswith(f"{NOT_IN_EFFECT} {reason}")
    assert len(loading.opened) == 2
    loading.engines["m", "1"] = Echo()
    loading.loader.load("m", TIMEOUT_S)
    assert _config(loading).settings.max_batch_size == 2
    assert loading.catalog.problems() == {}


def test_reload_that_may_succeed_later_is_tried_again(loading, monkeypatch):
    """The version serves meanwhile."""
    clock = standing_clock(monkeypatch, "app.repository.loading.loads")

    def no_answer(_):
        clock.now += 1
        raise NotYetLoadable("no answer")

    loading.engines["m", "1"] = no_answer
    loading.configure("m", "max_batch_size = 2")
    loading.rescan()
    loading.engines["m", "1"] = Echo()
    for passed_s, opened in ((9, 2), (1, 3)):
        clock.now += passed_s
        loading.rescan()
        assert len(loading.opened) == opened
        assert loading.answers("m") == 1
    assert loading.catalog.problems() == {}


def test_reload_finishes_jobs_of_the_old_engine(tmp_path):
    """The old engine is closed after its last job."""
    loading = Loading(tmp_path)
    old = loading.add("m", 1, Blocks())
    old.unblock()
    loading.load()
    old.block()
    loading.engines["m", "1"] = Echo()
    loading.configure("m", "max_batch_size = 2")
    with loading.catalog.lease(Target()) as model:
        one = job(7)
        model.runner.submit(one)
        old.wait_until_started()
        reload = threading.Thread(target=loading.rescan)
        reload.start()
        wait_until(lambda: _config(loading).settings.max_batch_size == 2, TIMEOUT_S)
        assert loading.answers("m") == 1
        assert old.closed == 0
        old.unblock()
        assert answered(one) == [7]
    reload.join(TIMEOUT_S)
    assert old.closed == 1
    loading.close()


def test_new_version_is_loaded_with_the_new_limits_at_once(loading):
    """The version before is not loaded again for its last moments."""
    loading.add("m", 2)
    loading.configure("m", "max_batch_size = 2")
    loading.rescan()
    assert loading.opened == [("m", "1"), ("m", "2")]
    assert _config(loading).settings.max_batch_size == 2


def test_overwritten_version_is_not_loaded_again(loading):
    """Its number stands for the content that was loaded."""
    file = loading.folder / "m" / "1" / "model.keras"
    file.write_text("1")
    loading.loader.unload("m", TIMEOUT_S)
    loading.loader.load("m", TIMEOUT_S)
    file.write_text("12")
    loading.configure("m", "max_batch_size = 2")
    loading.rescan()
    assert len(loading.opened) == 2
    (problems,) = loading.catalog.problems()["m"]
    assert problems.endswith(f"; {NOT_IN_EFFECT} its files have changed, too")


def test_corrected_basket_toml_has_a_failed_version_tried_again(tmp_path):
    """No file of the version has changed."""
    loading = Loading(tmp_path)
    loading.add("m")
    loading.configure("m", IMAGE)
    assert "[image] makes rows" in loading.load().not_ready()["m"]
    loading.configure("m", "")
    loading.rescan()
    assert loading.answers("m") == 1
    loading.close()
