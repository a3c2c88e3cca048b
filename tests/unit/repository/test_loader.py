"""Loading, swapping, unloading and closing, with engines that load in no time."""

import gc
import threading
import weakref
from types import SimpleNamespace

import pytest

from app import run_dir
from app.errors import (
    Late,
    ModelFailed,
    ModelLoadError,
    NotReady,
    NotYetLoadable,
    Stopping,
    UnknownModel,
)
from app.repository.catalog import Catalog
from app.repository.loader import Loader
from app.repository.opener import Opener
from app.repository.quarantine import Quarantine
from app.repository.routing import Target
from app.repository.served import ServedModel, State
from app.settings import Settings
from app.settings.model_config import ModelConfig
from testing.server import wait_until
from tests.support.clocks import standing_clock
from tests.support.engines import Blocks, Echo
from tests.support.jobs import Notes, answered, job

PATIENCE_S = 10
CAN_NOT_BE_READ = "its folder can't be read now: File name too long"


class Loading:
    """A Loader over a folder that looks only when told, and fake engines by version."""

    def __init__(self, folder, **settings):
        self.folder = folder
        self.engines = {}
        self.opened = []
        self.observed = []
        self.settings = Settings(model_dir=folder, max_batch_size=4, **settings)
        self.catalog = Catalog(self.settings.default_model)
        self.unloaded = run_dir.Notes()
        self.loader = Loader(
            self.settings,
            self.catalog,
            Opener(self.observe, self.open),
            self.unloaded,
            Quarantine(run_dir.Notes()),
            scan_every_s=None,
        )

    def observe(self, name, version):
        self.observed.append((name, version))
        return Notes()

    def open(self, folder, settings):
        """Give the engine that is meant for this version, call it, or raise it."""
        del settings
        key = (folder.parent.name, folder.name)
        self.opened.append(key)
        engine = self.engines[key]
        if isinstance(engine, BaseException):
            raise engine
        return engine(folder) if callable(engine) else engine

    def add(self, name, version=1, engine=None):
        """Make a version's folder, and say which engine it gets."""
        (self.folder / name / str(version)).mkdir(parents=True)
        engine = engine or Echo()
        self.engines[name, str(version)] = engine
        return engine

    def remove(self, name, version):
        (self.folder / name / str(version)).rmdir()

    def configure(self, name, text):
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "basket.toml").write_text(text)

    def hide(self, name):
        """Put a link that can't be followed, by root neither, in a folder's place."""
        folder = self.folder / name
        if folder.exists():
            folder.rename(self.folder / f".{name}")
        folder.symlink_to("x" * 300)

    def load(self):
        self.loader.start()
        assert self.loader.wait(PATIENCE_S)
        return self.catalog

    def rescan(self):
        assert self.loader.rescan(PATIENCE_S)

    def serving(self, name):
        """The versions of a model that serve."""
        return {
            status.version
            for status in self.catalog.status(name)
            if status.state is State.AVAILABLE
        }

    def answers(self, name=None, **target):
        """The version that answers a job, by its answer's header."""
        with self.catalog.lease(Target(name, **target)) as model:
            one = job(7)
            model.runner.submit(one)
            assert answered(one) == [7]
            return model.version


@pytest.fixture(name="loading")
def _loading(tmp_path):
    loading = Loading(tmp_path)
    yield loading
    for engine in loading.engines.values():
        if isinstance(engine, Echo):
            engine.let_go()
    loading.loader.close(PATIENCE_S)


class CanNotClose(Echo):
    """Raises when it is closed."""

    def close(self):
        super().close()
        raise ValueError("can't close")


# Loading at the start.


def test_the_newest_version_is_opened_and_served(loading):
    """A model's newest version is opened, and its jobs are answered."""
    loading.add("flowers", 9)
    loading.add("flowers", 10)
    loading.load()
    assert loading.answers() == 10
    assert loading.opened == [("flowers", "10")]
    assert loading.observed == [("flowers", "10")]


def test_labelled_versions_are_served_beside_the_newest(loading):
    """Each version that a label names is loaded with the newest, and no other."""
    for version in (1, 2, 3, 4):
        loading.add("flowers", version)
    loading.configure("flowers", "[labels]\nstable = 1\ncanary = 3")
    loading.load()
    assert loading.serving("flowers") == {1, 3, 4}
    assert loading.answers() == 4
    assert loading.answers(label="stable") == 1


def test_the_version_with_the_most_traffic_is_there_first(loading):
    """Versions are loaded in the order of their traffic, so that none gets too much."""
    for version in (1, 2):
        loading.add("flowers", version)
    loading.configure(
        "flowers",
        "[labels]\nstable = 1\ncanary = 2\n[traffic]\nstable = 9\ncanary = 1",
    )
    loading.load()
    assert [version for _, version in loading.opened] == ["1", "2"]


def test_the_default_model_is_loaded_first(tmp_path):
    """The default model is loaded before those whose names come before its own."""
    loading = Loading(tmp_path, default_model="pears")
    for name in ("apples", "pears", "plums"):
        loading.add(name)
    loading.load()
    assert [name for name, _ in loading.opened] == ["pears", "apples", "plums"]
    loading.loader.close(PATIENCE_S)


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
    loading.add("broken", engine=error)
    loading.add("pears")
    catalog = loading.load()
    assert [model.name for model in catalog.models()] == ["apples", "pears"]
    assert catalog.not_ready() == {"broken": reason}
    with pytest.raises(NotReady), catalog.lease(Target("broken")):
        pass


def test_a_broken_newest_version_gives_way_to_the_one_before(loading):
    """At the start too, the newest version that can be loaded is the one to serve."""
    loading.add("flowers", 1)
    loading.add("flowers", 2)
    loading.add("flowers", 3, ModelLoadError("no file"))
    catalog = loading.load()
    assert loading.serving("flowers") == {2}
    assert catalog.not_ready() == {}
    assert catalog.problems() == {"flowers": ["version 3: no file"]}


def test_a_model_without_a_version_is_noted(loading):
    """A model folder without a version folder is missing and says what it lacks."""
    (loading.folder / "empty").mkdir()
    assert loading.load().not_ready() == {"empty": "has no version folder, such as 1"}
    assert loading.opened == []


def test_a_bad_basket_toml_is_noted(loading):
    """A basket.toml with an unknown key keeps its model from being served."""
    loading.add("flowers")
    loading.configure("flowers", "size = 3")
    assert "unknown key 'size'" in loading.load().not_ready()["flowers"]
    assert loading.opened == []


def test_a_folder_that_can_not_be_read_is_noted_at_the_start(loading):
    """A model whose folder can't be read is missing with the reason, others serve."""
    loading.add("pears")
    loading.hide("apples")
    assert loading.load().not_ready() == {"apples": CAN_NOT_BE_READ}
    assert loading.answers("pears") == 1


def test_a_label_without_a_version_is_noted(loading):
    """A label whose version is not there is told, and the model serves."""
    loading.add("flowers")
    loading.configure("flowers", "[labels]\nstable = 7")
    catalog = loading.load()
    assert catalog.not_ready() == {}
    assert catalog.problems() == {
        "flowers": ["label stable names version 7, and there is none"]
    }


def test_a_model_s_own_settings_count(loading):
    """What basket.toml says decides how large this model's batches may be."""
    engine = loading.add("flowers")
    loading.configure("flowers", "max_batch_size = 2")
    with loading.load().lease(Target()) as model:
        one = job(1, 2, 3)
        model.runner.submit(one)
        assert answered(one) == [1, 2, 3]
    assert [len(batch) for batch in engine.batches][-2:] == [2, 1]


def test_models_are_announced_before_they_load(loading):
    """From the start on a model that is not ready yet is known to be loading."""
    engine = loading.add("flowers", engine=Blocks())
    loading.loader.start()
    engine.wait_until_started()
    assert loading.catalog.not_ready() == {"flowers": "is loading"}
    assert loading.catalog.status("flowers")[0].state is State.LOADING
    assert not loading.loader.wait(0)
    engine.let_go()
    assert loading.loader.wait(PATIENCE_S)
    assert loading.catalog.not_ready() == {}


def test_start_twice_loads_once(loading):
    """A second start loads nothing again."""
    loading.add("flowers")
    loading.load()
    loading.load()
    loading.rescan()
    assert len(loading.opened) == 1


# Changes while it runs.


def test_a_new_version_takes_over_and_the_old_one_goes(loading):
    """A new version is served from the next look on, and the old engine is closed."""
    old = loading.add("flowers", 1)
    loading.load()
    new = loading.add("flowers", 2)
    loading.rescan()
    assert loading.answers() == 2
    assert loading.serving("flowers") == {2}
    assert (old.closed, new.closed) == (1, 0)
    with pytest.raises(UnknownModel):
        loading.answers(version=1)


def test_a_job_of_the_old_version_is_finished(loading):
    """A version that is replaced while its job runs answers it before it goes."""
    old = loading.add("flowers", 1, Blocks())
    old.let_go()
    loading.load()
    old.hold()
    loading.add("flowers", 2)
    with loading.catalog.lease(Target()) as model:
        one = job(7)
        model.runner.submit(one)
        old.wait_until_started()
        swap = threading.Thread(target=loading.rescan)
        swap.start()
        wait_until(lambda: loading.serving("flowers") == {2}, PATIENCE_S)
        assert loading.answers() == 2
        assert old.closed == 0
        old.let_go()
        assert answered(one) == [7]
    swap.join(PATIENCE_S)
    assert old.closed == 1


def test_a_version_that_fails_leaves_the_old_one_serving(loading):
    """A new version that can't be loaded changes nothing but the status."""
    loading.add("flowers", 1)
    loading.load()
    loading.add("flowers", 2, ModelLoadError("no file"))
    loading.rescan()
    assert loading.answers() == 1
    assert loading.catalog.not_ready() == {}
    assert loading.catalog.problems() == {"flowers": ["version 2: no file"]}


def test_a_broken_version_is_tried_again_when_it_has_changed(loading):
    """A version that failed is left alone until one of its files is another."""
    loading.add("flowers", 1, ModelLoadError("half a file"))
    loading.load()
    loading.rescan()
    assert len(loading.opened) == 1
    loading.engines["flowers", "1"] = Echo()
    (loading.folder / "flowers" / "1" / "model.keras").touch()
    loading.rescan()
    assert loading.answers() == 1
    assert loading.catalog.problems() == {}


def test_a_version_that_is_being_copied_is_tried_once_in_each_pass(loading):
    """One that grows with each try leaves the one before it, and others, their turn."""
    loading.add("flowers", 1)
    loading.add("flowers", 2, engine=_half_copied)
    loading.add("pears")
    loading.load()
    assert loading.opened == [("flowers", "2"), ("flowers", "1"), ("pears", "1")]
    loading.rescan()
    assert loading.opened[3:] == [("flowers", "2")]
    assert loading.serving("flowers") == {1}
    loading.engines["flowers", "2"] = Echo()
    loading.rescan()
    assert loading.serving("flowers") == {2}


def test_a_version_that_waits_for_another_server_is_tried_each_time(
    loading, caplog, monkeypatch
):
    """It is served once it can be, though no file changed, and is logged only once."""
    standing_clock(monkeypatch, "app.repository.reconciler")
    loading.add("m", 1)
    loading.add("m", 2, NotYetLoadable("the server is away"))
    catalog = loading.load()
    for _ in range(2):
        assert loading.loader.rescan(PATIENCE_S)
    assert list(catalog.names()) == ["m"]
    with catalog.lease(Target("m")) as model:
        assert model.version == 1
    assert loading.opened.count(("m", "2")) == 3
    assert caplog.text.count("the server is away") == 1
    loading.engines["m", "2"] = Echo()
    assert loading.loader.rescan(PATIENCE_S)
    with catalog.lease(Target("m")) as model:
        assert model.version == 2
    assert loading.loader.rescan(PATIENCE_S)
    assert loading.opened.count(("m", "2")) == 4


@pytest.mark.parametrize(("took_s", "pause_s"), [(3, 30), (20, 60)])
def test_a_version_that_takes_long_to_fail_leaves_the_others_their_time(
    loading, monkeypatch, took_s, pause_s
):
    """Ten times as long as a try took passes until the next, but at most a minute."""
    clock = standing_clock(monkeypatch, "app.repository.reconciler")

    def wait_in_vain(_):
        clock.now += took_s
        raise NotYetLoadable("no answer")

    loading.add("m", 1, wait_in_vain)
    loading.load()
    clock.now += pause_s - 1
    loading.rescan()
    assert len(loading.opened) == 1
    clock.now += 1
    loading.rescan()
    assert len(loading.opened) == 2


def test_by_hand_a_version_that_waits_is_tried_at_once(loading, monkeypatch):
    """A load by hand does not wait for the next try."""
    clock = standing_clock(monkeypatch, "app.repository.reconciler")

    def wait_in_vain(_):
        clock.now += 3
        raise NotYetLoadable("no answer")

    loading.add("m", 1, wait_in_vain)
    loading.load()
    loading.engines["m", "1"] = Echo()
    loading.loader.load("m", PATIENCE_S)
    assert loading.serving("m") == {1}


def test_a_version_that_is_written_over_is_told_once(loading, caplog):
    """What serves goes on, and says so, until there is a new version."""
    loading.add("flowers", 1)
    file = loading.folder / "flowers" / "1" / "model.keras"
    file.write_text("1")
    loading.load()
    loading.rescan()
    assert loading.catalog.problems() == {}
    file.write_text("12")
    loading.rescan()
    loading.rescan()
    said = (
        "version 1 has changed since it was loaded, and the old content answers: write "
        "a new version, such as 2"
    )
    assert loading.catalog.problems() == {"flowers": [said]}
    assert loading.catalog.not_ready() == {}
    assert caplog.text.count(said) == 1
    loading.add("flowers", 2)
    loading.rescan()
    loading.rescan()
    assert loading.catalog.problems() == {}


def test_a_version_that_is_loaded_again_is_as_it_is_then(loading):
    """Unloaded and loaded by hand, a version that was written over is read anew."""
    loading.add("flowers", 1)
    file = loading.folder / "flowers" / "1" / "model.keras"
    file.write_text("1")
    loading.load()
    loading.loader.unload("flowers", PATIENCE_S)
    file.write_text("12")
    loading.loader.load("flowers", PATIENCE_S)
    loading.rescan()
    assert loading.catalog.problems() == {}


def test_limits_that_do_not_count_yet_are_told(loading):
    """What basket.toml says of batches counts from the next load, and shows as such."""
    loading.add("flowers", 1)
    loading.load()
    loading.configure("flowers", "max_batch_size = 2")
    loading.rescan()
    assert loading.catalog.problems() == {
        "flowers": [
            "basket.toml has changed since version 1 was loaded: its limits and "
            "[image] count from the next load"
        ]
    }
    loading.add("flowers", 2)
    loading.rescan()
    loading.rescan()
    assert loading.catalog.problems() == {}


def test_a_split_goes_on_where_it_was(loading, monkeypatch):
    """To look at the folder again is no new beginning in dealing requests out."""
    from_the_start = SimpleNamespace(random=lambda: 0.0)
    monkeypatch.setattr("app.repository.routing.SystemRandom", lambda: from_the_start)
    for version in (1, 2):
        loading.add("m", version)
    labels = "[labels]\na = 1\nb = 2\n"
    loading.configure("m", f"{labels}[traffic]\na = 1\nb = 1")
    loading.load()
    answered_by = []
    for _ in range(8):
        answered_by.append(loading.answers("m"))
        loading.rescan()
    assert answered_by[:4] == [1, 2, 1, 2]
    loading.configure("m", f"{labels}[traffic]\na = 0\nb = 1")
    loading.rescan()
    assert {loading.answers("m") for _ in range(8)} == {2}


def test_a_version_that_is_taken_away_gives_way_to_the_one_before(loading):
    """When the newest folder goes, the version before it is loaded first."""
    loading.add("flowers", 1)
    new = loading.add("flowers", 2)
    loading.load()
    loading.remove("flowers", 2)
    loading.rescan()
    assert loading.answers() == 1
    assert new.closed == 1


def test_a_broken_version_that_is_taken_away_is_forgotten(loading):
    """The error of a version that is gone no longer stands in the status."""
    loading.add("flowers", 1)
    loading.add("flowers", 2, ModelLoadError("no file"))
    loading.load()
    loading.remove("flowers", 2)
    loading.rescan()
    assert loading.catalog.problems() == {}
    assert len(loading.catalog.status("flowers")) == 1


def test_a_model_comes_and_goes_with_its_folder(loading):
    """A model folder that appears is served, and one that goes is unknown."""
    loading.add("apples")
    loading.load()
    loading.add("pears")
    loading.rescan()
    assert loading.answers("pears") == 1
    loading.remove("pears", 1)
    (loading.folder / "pears").rmdir()
    loading.rescan()
    assert loading.catalog.names() == ["apples"]
    assert loading.engines["pears", "1"].closed == 1


def test_labels_change_while_it_runs(loading):
    """A label that moves to another version moves once that version is ready."""
    for version in (1, 2, 3):
        loading.add("flowers", version)
    loading.configure("flowers", "[labels]\nstable = 1")
    loading.load()
    loading.configure("flowers", "[labels]\nstable = 2")
    loading.rescan()
    assert loading.answers(label="stable") == 2
    assert loading.serving("flowers") == {2, 3}
    assert loading.engines["flowers", "1"].closed == 1


def test_a_basket_toml_that_breaks_changes_nothing_else(loading):
    """A model goes on as it is while its basket.toml can't be read, and that shows."""
    loading.add("flowers", 1)
    loading.configure("flowers", "[labels]\nstable = 1")
    loading.load()
    loading.configure("flowers", "[labels")
    loading.rescan()
    assert loading.answers(label="stable") == 1
    assert loading.catalog.not_ready() == {}
    assert "basket.toml" in loading.catalog.problems()["flowers"][0]


def test_a_model_s_folder_that_can_not_be_read_changes_nothing_else(loading):
    """A model goes on while its folder can't be read, and others come and go."""
    for name in ("apples", "plums"):
        loading.add(name)
    catalog = loading.load()
    loading.hide("apples")
    loading.remove("plums", 1)
    (loading.folder / "plums").rmdir()
    loading.add("pears")
    loading.rescan()
    assert (loading.answers("apples"), loading.answers("pears")) == (1, 1)
    assert catalog.names() == ["apples", "pears"]
    assert catalog.not_ready() == {}
    assert catalog.problems() == {"apples": [CAN_NOT_BE_READ]}


def test_a_folder_that_can_not_be_read_changes_nothing(loading, caplog):
    """While the folder of models can't be read, what is served goes on, and says so."""
    for name in ("flowers", "pears"):
        loading.add(name)
    catalog = loading.load()
    aside = loading.folder.rename(loading.folder.with_name("aside"))
    for _ in range(2):
        loading.rescan()
    problem = f"{loading.folder} can't be read now: No such file or directory"
    assert loading.answers("flowers") == 1
    assert catalog.problems() == {"flowers": [problem], "pears": [problem]}
    assert caplog.messages.count(problem) == 1
    aside.rename(loading.folder)
    loading.unloaded.add("pears")
    loading.rescan()
    assert catalog.problems() == {}
    aside = loading.folder.rename(aside)
    loading.rescan()
    assert caplog.messages.count(problem) == 2


def test_a_default_model_that_is_not_there_is_told(tmp_path, caplog):
    """A default model with a misspelt name is logged once, with those there are."""
    loading = Loading(tmp_path, default_model="pear")
    for name in ("pears", "apples"):
        loading.add(name)
    loading.load()
    loading.rescan()
    told = f"default model 'pear' is not in {tmp_path}; there are: apples, pears"
    assert caplog.messages.count(told) == 1
    loading.add("pear")
    caplog.clear()
    loading.rescan()
    assert "default model" not in caplog.text
    loading.remove("pear", 1)
    (tmp_path / "pear").rmdir()
    loading.rescan()
    assert caplog.messages.count(told) == 1
    loading.loader.close(PATIENCE_S)


def test_a_default_model_that_nobody_chose_is_not_missed(loading, caplog):
    """Several models without a default one are no fault."""
    for name in ("apples", "pears"):
        loading.add(name)
    loading.load()
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_a_folder_without_models_is_told(loading, caplog):
    """An empty folder of models is logged once."""
    loading.load()
    loading.rescan()
    assert caplog.messages == [f"{loading.folder} holds no model"]


def test_a_bug_in_one_model_s_update_stops_no_other(loading, monkeypatch):
    """What goes wrong with one model keeps no other from being updated, ever."""
    loading.add("apples")
    loading.add("pears")
    update = loading.loader._reconciler.update

    def fail(folder):
        if folder.name == "apples":
            raise ValueError("a bug")
        update(folder)

    monkeypatch.setattr(loading.loader._reconciler, "update", fail)
    loading.load()
    assert loading.answers("pears") == 1
    loading.rescan()


def test_a_bug_in_a_model_s_removal_ends_nothing(loading, monkeypatch):
    """What goes wrong with a model that goes is tried again, and others come."""
    loading.add("apples")
    catalog = loading.load()
    remove, failures = loading.loader._reconciler.remove, [ValueError("a bug")]

    def fail_once(name):
        if failures:
            raise failures.pop()
        remove(name)

    monkeypatch.setattr(loading.loader._reconciler, "remove", fail_once)
    loading.remove("apples", 1)
    (loading.folder / "apples").rmdir()
    loading.add("pears")
    loading.rescan()
    assert catalog.names() == ["apples", "pears"]
    loading.rescan()
    assert catalog.names() == ["pears"]


def test_no_collection_walks_what_is_loaded_and_what_goes_is_freed(loading):
    """An engine is frozen once it serves, and freed with its cycles when it goes."""
    engine = loading.add("flowers")
    engine.itself = engine
    loading.load()
    assert not any(each is engine for each in gc.get_objects())
    gone = weakref.ref(engine)
    del engine
    loading.engines.clear()
    loading.loader.unload("flowers", PATIENCE_S)
    assert gone() is None


def test_a_pass_that_changes_nothing_collects_nothing(loading, monkeypatch):
    """Only a load or an unload costs a collection, and a swap costs one."""
    collections = []
    monkeypatch.setattr(
        "app.repository.reconciler.collect_and_freeze", lambda: collections.append(1)
    )
    loading.add("flowers", 1)
    loading.load()
    loading.rescan()
    assert len(collections) == 1
    loading.add("flowers", 2)
    loading.rescan()
    assert len(collections) == 2
    loading.unloaded.add("flowers")
    loading.rescan()
    loading.rescan()
    assert len(collections) == 3


# By hand.


def test_unload_and_load_by_hand(loading):
    """An unloaded model stays unloaded until it is loaded again."""
    first = loading.add("flowers")
    loading.load()
    loading.loader.unload("flowers", PATIENCE_S)
    assert first.closed == 1
    loading.rescan()
    assert loading.catalog.unavailable_reason("flowers") == "is unloaded"
    loading.loader.load("flowers", PATIENCE_S)
    assert loading.answers() == 1
    assert len(loading.opened) == 2


def test_what_one_worker_unloads_the_others_unload(loading):
    """A name that another worker puts into the shared set is unloaded here too."""
    loading.add("flowers")
    loading.load()
    loading.unloaded.add("flowers")
    loading.rescan()
    assert loading.catalog.unavailable_reason("flowers") == "is unloaded"


def test_a_model_that_is_unloaded_meanwhile_has_not_failed(loading, monkeypatch):
    """Who loads a model that somebody else unloads hears that it is not ready."""
    loading.add("flowers")
    loading.load()
    rescan = loading.loader.rescan

    def unloaded_meanwhile(timeout_s):
        loading.unloaded.add("flowers")
        return rescan(timeout_s)

    monkeypatch.setattr(loading.loader, "rescan", unloaded_meanwhile)
    with pytest.raises(NotReady, match="'flowers' was unloaded again"):
        loading.loader.load("flowers", PATIENCE_S)


def test_load_tries_a_broken_model_again(loading):
    """A load by hand tries a model that failed, although its files are the same."""
    loading.add("flowers", 1, ModelLoadError("no memory now"))
    loading.load()
    with pytest.raises(ModelFailed, match="'flowers': no memory now"):
        loading.loader.load("flowers", PATIENCE_S)
    loading.engines["flowers", "1"] = Echo()
    loading.loader.load("flowers", PATIENCE_S)
    assert loading.answers() == 1
    assert len(loading.opened) == 3


def test_by_hand_nobody_waits_for_ever(loading):
    """A load or unload that is not done in its time is late, and goes on."""
    engine = loading.add("flowers", engine=Blocks())
    loading.loader.start()
    engine.wait_until_started()
    with pytest.raises(Late, match="'flowers' is still loading"):
        loading.loader.load("flowers", 0)
    with pytest.raises(Late, match="'flowers' is still unloading"):
        loading.loader.unload("flowers", 0)
    engine.let_go()
    loading.rescan()
    assert loading.catalog.unavailable_reason("flowers") == "is unloaded"


@pytest.mark.parametrize("name", ["pears", "..", ".", "", "flowers/1", "../flowers"])
def test_only_names_of_models_are_loaded_and_unloaded(loading, name):
    """A name that is no model's folder is unknown, whatever path it may be."""
    loading.add("flowers")
    loading.load()
    for call in (loading.loader.load, loading.loader.unload):
        with pytest.raises(UnknownModel, match="in the repository"):
            call(name, PATIENCE_S)
    assert loading.answers() == 1


# Closing.


def test_close_stops_all_models(loading):
    """After close all engines are closed, and the models refuse with Stopping."""
    engines = [loading.add("apples"), loading.add("pears")]
    models = loading.load().models()
    loading.loader.close(PATIENCE_S)
    loading.loader.close(PATIENCE_S)
    assert all(engine.closed for engine in engines)
    for model in models:
        with pytest.raises(Stopping):
            model.runner.submit(job(1))


def test_nobody_waits_for_a_loader_that_is_closed(loading):
    """To load or to unload by hand during a stop is refused at once."""
    loading.add("flowers")
    loading.load()
    loading.loader.close(PATIENCE_S)
    for call in (loading.loader.load, loading.loader.unload):
        with pytest.raises(Stopping):
            call("flowers", PATIENCE_S)


def test_an_engine_that_can_not_close_keeps_no_other_open(loading):
    """Close goes on to the next model where an engine raises, and raises nothing."""
    engines = [loading.add("apples", engine=CanNotClose()), loading.add("pears")]
    loading.load()
    loading.loader.close(PATIENCE_S)
    assert [engine.closed for engine in engines] == [1, 1]


def test_close_before_the_start_is_no_error(loading):
    """A Loader that never started can be closed."""
    loading.loader.close(0)


def test_close_while_a_model_loads_closes_its_engine(loading):
    """A model that is still loading at the close is closed and never served."""
    engine = loading.add("apples", engine=Blocks())
    loading.add("pears")
    loading.loader.start()
    engine.wait_until_started()
    loading.loader.close(PATIENCE_S)
    assert engine.closed == 0
    engine.let_go()
    assert loading.loader.wait(PATIENCE_S)
    assert engine.closed == 1
    assert loading.catalog.models() == []
    assert loading.opened == [("apples", "1")]


def test_all_models_share_one_time_limit(loading, monkeypatch):
    """At close a model gets what those before it left of the time, and at least 0."""
    now, left_s = [1000.0], []

    def close(timeout_s):
        left_s.append(timeout_s)
        now[0] += 3.0

    for name in ("apples", "pears", "plums"):
        runner = SimpleNamespace(close=close)
        config = ModelConfig(loading.settings)
        loading.catalog.add(ServedModel(name, 1, "", {}, config, runner, Notes()))
    fake_time = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("app.repository.loader.time", fake_time)
    loading.loader.close(5.0)
    assert left_s == [5.0, 2.0, 0.0]


def _half_copied(folder):
    """Be written to while it is opened, the first few times."""
    file = folder / "model.keras"
    written = file.read_bytes() if file.exists() else b""
    if len(written) < 5:
        file.write_bytes(written + b"-")
    raise ModelLoadError("half a file")
