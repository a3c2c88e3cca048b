"""Scanning, loading, warming and closing, with engines that load in no time."""

from types import SimpleNamespace

import numpy as np
import pytest

from app.engines.base import Signature, TensorSpec
from app.errors import ModelLoadError, NotReady, OutOfDeviceMemory, Stopping
from app.serving.batcher import Batcher, Unbatched
from app.serving.catalog import Catalog, ServedModel
from app.serving.loader import Loader, newest_versions, warm_up
from app.settings import Settings
from tests.support.engines import Blocks, Echo
from tests.support.jobs import Notes, answered, job


class Loading:
    """A Loader over a folder, and fake engines by name of model."""

    def __init__(self, folder, **settings):
        self.folder = folder
        self.engines = {}
        self.opened = []
        self.settings = Settings(model_dir=folder, max_batch_size=4, **settings)
        self.catalog = Catalog(self.settings.default_model)
        self.loader = Loader(self.settings, self.catalog, self.observe, self.open)
        self.observed = []

    def observe(self, name, version):
        self.observed.append((name, version))
        return Notes()

    def open(self, folder, settings):
        """Give the engine that is meant for this model, or raise it."""
        self.opened.append((folder.parent.name, folder.name, settings))
        engine = self.engines.setdefault(folder.parent.name, Echo())
        if isinstance(engine, BaseException):
            raise engine
        return engine

    def add(self, name, engine=None, versions=("1",)):
        """Make the model's folders, and say which engine it gets."""
        for version in versions:
            (self.folder / name / version).mkdir(parents=True)
        self.engines[name] = engine or Echo()
        return self.engines[name]

    def load(self):
        self.loader.start()
        assert self.loader.wait(10)
        return self.catalog


@pytest.fixture(name="loading")
def _loading(tmp_path):
    loading = Loading(tmp_path)
    yield loading
    for engine in loading.engines.values():
        if isinstance(engine, Echo):
            engine.let_go()
    loading.loader.close(10)


class Fails(Echo):
    """Raises for batches of these sizes."""

    def __init__(self, error, *sizes):
        super().__init__()
        self.error, self.sizes = error, sizes

    def run(self, batch):
        outputs = super().run(batch)
        if len(batch["input"]) in self.sizes:
            raise self.error
        return outputs


class CanNotClose(Echo):
    """Raises when it is closed."""

    def close(self):
        super().close()
        raise ValueError("can't close")


def _sizes(engine):
    return [len(batch) for batch in engine.batches]


# What is in the folder.


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        pytest.param(["1"], "1", id="one"),
        pytest.param(["9", "10"], "10", id="by number, not by letters"),
        pytest.param(["2", "007"], "007", id="leading zeros"),
        pytest.param(["1", "latest", ".3", "4x", "-5", "٦"], "1", id="other names"),
        pytest.param([], None, id="none"),
        pytest.param(["latest"], None, id="only other names"),
    ],
)
def test_the_newest_version_is_the_highest_number(tmp_path, versions, newest):
    """Of a model's folders the highest whole number is its newest version."""
    (tmp_path / "flowers").mkdir()
    for version in versions:
        (tmp_path / "flowers" / version).mkdir()
    found = newest_versions(tmp_path)["flowers"]
    assert (found and found.name) == newest


def test_a_file_with_a_number_is_no_version(tmp_path):
    """A version is a folder, so that a file called 2 is none."""
    (tmp_path / "flowers" / "1").mkdir(parents=True)
    (tmp_path / "flowers" / "2").write_text("not a folder")
    assert newest_versions(tmp_path)["flowers"].name == "1"


def test_hidden_folders_and_files_are_no_models(tmp_path):
    """Folders that begin with a dot or an underscore, and files, are no models."""
    for name in (".git", "__pycache__", "_old", "lost+found", "flowers"):
        (tmp_path / name / "1").mkdir(parents=True)
    (tmp_path / "README.md").write_text("about the models")
    assert list(newest_versions(tmp_path)) == ["flowers"]


# Loading.


def test_the_newest_version_is_opened_and_served(loading):
    """A model's newest version is opened, and its jobs are answered."""
    loading.add("flowers", versions=["9", "10"])
    model = loading.load().find()
    assert (model.name, model.version) == ("flowers", "10")
    assert [opened[:2] for opened in loading.opened] == [("flowers", "10")]
    assert loading.observed == [("flowers", "10")]
    one = job(7)
    model.runner.submit(one)
    assert answered(one) == [7]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(ModelLoadError("no file"), "no file", id="load error"),
        pytest.param(
            ValueError("secret"), "failed to load (ValueError)", id="exception"
        ),
        pytest.param(
            SystemExit("secret"), "failed to load (SystemExit)", id="system exit"
        ),
    ],
)
def test_a_broken_model_is_noted_and_the_others_serve(loading, error, reason):
    """A model that raises while it loads is missing with a reason, and alone in it."""
    loading.add("apples")
    loading.add("broken", error)
    loading.add("pears")
    catalog = loading.load()
    assert [model.name for model in catalog.models()] == ["apples", "pears"]
    assert catalog.missing()["broken"] == reason
    with pytest.raises(NotReady):
        catalog.find("broken")


def test_a_model_without_a_version_is_noted(loading):
    """A model folder without a version folder is missing and says what it lacks."""
    loading.add("empty", versions=[])
    (loading.folder / "empty").mkdir()
    assert loading.load().missing() == {"empty": "has no version folder, such as 1"}
    assert loading.opened == []


def test_a_bad_basket_toml_is_noted(loading):
    """A basket.toml with an unknown key keeps its model from being served."""
    loading.add("flowers")
    (loading.folder / "flowers" / "basket.toml").write_text("size = 3")
    assert "unknown key 'size'" in loading.load().missing()["flowers"]
    assert loading.opened == []


def test_a_model_s_own_settings_count(loading):
    """What basket.toml says decides how large this model's batches may be."""
    engine = loading.add("flowers")
    (loading.folder / "flowers" / "basket.toml").write_text("max_batch_size = 2")
    model = loading.load().find()
    one = job(1, 2, 3)
    model.runner.submit(one)
    assert answered(one) == [1, 2, 3]
    assert _sizes(engine)[-2:] == [2, 1]


def test_models_are_announced_before_they_load(loading):
    """From the start on a model that is not ready yet is known to be loading."""
    engine = loading.add("flowers", Blocks())
    loading.loader.start()
    engine.wait_until_started()
    assert loading.catalog.missing() == {"flowers": "is loading"}
    assert not loading.loader.wait(0)
    engine.let_go()
    assert loading.loader.wait(10)
    assert loading.catalog.missing() == {}


def test_start_twice_loads_once(loading):
    """A second start loads nothing again."""
    loading.add("flowers")
    loading.load()
    loading.load()
    assert len(loading.opened) == 1


@pytest.mark.parametrize(
    ("batching", "kind"), [(True, Batcher), (False, Unbatched)], ids=["on", "off"]
)
def test_batching_can_be_turned_off(tmp_path, batching, kind):
    """BASKET_BATCHING decides which kind of runner a model gets."""
    loading = Loading(tmp_path, batching=batching)
    loading.add("flowers")
    model = loading.load().find()
    assert isinstance(model.runner, kind)
    one = job(*range(4 * loading.settings.max_enqueued_batches))
    model.runner.submit(one)
    assert len(answered(one)) == one.rows
    loading.loader.close(10)


# Warm-up.


@pytest.mark.parametrize(
    ("max_batch_size", "sizes"), [(4, [1, 4]), (1, [1])], ids=["1 and 4", "only 1"]
)
def test_warm_up_runs_the_smallest_and_the_largest_batch(max_batch_size, sizes):
    """Warm-up runs one row and a full batch, each size once."""
    engine = Echo()
    warm_up(engine, max_batch_size)
    assert _sizes(engine) == sizes


def test_warm_up_feeds_what_the_signature_wants():
    """The rows of a warm-up have each input's name, dtype and shape, free sizes 1."""
    given = {}

    class Wants(Echo):
        def run(self, batch):
            given.update(batch)
            return {}

    engine = Wants()
    specs = (
        TensorSpec("image", np.dtype(np.uint8), (2, None, 3)),
        TensorSpec("scale", np.dtype(np.float64), ()),
    )
    engine.signature = Signature(specs, ())
    warm_up(engine, 5)
    assert {name: (rows.dtype, rows.shape) for name, rows in given.items()} == {
        "image": (np.uint8, (5, 2, 1, 3)),
        "scale": (np.float64, (5,)),
    }


@pytest.mark.parametrize("size", [1, 4], ids=["one row", "full batch"])
@pytest.mark.parametrize(
    "error", [ValueError("secret"), SystemExit("secret")], ids=["exception", "exit"]
)
def test_a_model_that_fails_its_warm_up_is_not_served(loading, size, error):
    """A model that raises in its warm-up is missing, and its engine is closed."""
    engine = loading.add("broken", Fails(error, size))
    loading.add("pears")
    catalog = loading.load()
    assert [model.name for model in catalog.models()] == ["pears"]
    assert type(error).__name__ in catalog.missing()["broken"]
    assert "secret" not in catalog.missing()["broken"]
    assert engine.closed == 1


def test_a_full_batch_that_does_not_fit_is_tolerated(loading):
    """A model whose memory is too small for a full batch is served all the same."""
    loading.add("flowers", Fails(OutOfDeviceMemory("4 rows do not fit"), 4))
    assert loading.load().find().name == "flowers"


def test_a_row_that_does_not_fit_is_not_tolerated(loading):
    """A model whose memory is too small for one row is missing and says so."""
    loading.add("flowers", Fails(OutOfDeviceMemory("1 row does not fit"), 1))
    reason = loading.load().missing()["flowers"]
    assert reason == "not even one row fits: 1 row does not fit"


# Closing.


def test_close_stops_all_models(loading):
    """After close all engines are closed, and the models refuse with Stopping."""
    engines = [loading.add("apples"), loading.add("pears")]
    models = loading.load().models()
    loading.loader.close(10)
    loading.loader.close(10)
    assert all(engine.closed for engine in engines)
    for model in models:
        with pytest.raises(Stopping):
            model.runner.submit(job(1))


def test_an_engine_that_can_not_close_keeps_no_other_open(loading):
    """Close goes on to the next model where an engine raises, and raises nothing."""
    engines = [loading.add("apples", CanNotClose()), loading.add("pears")]
    loading.load()
    loading.loader.close(10)
    assert [engine.closed for engine in engines] == [1, 1]


def test_close_before_the_start_is_no_error(loading):
    """A Loader that never started can be closed."""
    loading.loader.close(0)


def test_close_while_a_model_loads_closes_its_engine(loading):
    """A model that is still loading at the close is closed and never served."""
    engine = loading.add("apples", Blocks())
    loading.add("pears")
    loading.loader.start()
    engine.wait_until_started()
    loading.loader.close(10)
    assert engine.closed == 0
    engine.let_go()
    assert loading.loader.wait(10)
    assert engine.closed == 1
    assert loading.catalog.models() == []
    assert [name for name, *_ in loading.opened] == ["apples"]


def test_all_models_share_one_time_limit(loading, monkeypatch):
    """At close a model gets what those before it left of the time, and at least 0."""
    now, left_s = [1000.0], []

    def close(timeout_s):
        left_s.append(timeout_s)
        now[0] += 3.0

    for name in ("apples", "pears", "plums"):
        runner = SimpleNamespace(close=close)
        signature = Signature((), ())
        loading.catalog.add(ServedModel(name, "1", signature, runner, Notes()))
    fake_time = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("app.serving.loader.time", fake_time)
    loading.loader.close(5.0)
    assert left_s == [5.0, 2.0, 0.0]
