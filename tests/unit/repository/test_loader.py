"""Load, hot swap, unload and close, with engines that load at once."""

import threading
from types import SimpleNamespace

import pytest

from app.errors import (
    Late,
    ModelFailed,
    ModelLoadError,
    NotReady,
    NotYetLoadable,
    Stopping,
    UnknownModel,
)
from app.repository.reconciler import Reconciler
from app.repository.routing import Target
from app.repository.served import ServedModel, State
from app.settings.model_config import ModelConfig
from testing.processes import run_python
from testing.server import wait_until
from tests.support.clocks import standing_clock
from tests.support.engines import Blocks, Echo
from tests.support.jobs import Notes, answered, job
from tests.support.loading import TIMEOUT_S, Loading

UNREADABLE = "its folder can't be read now: File name too long"


@pytest.fixture(name="loading")
def _loading(tmp_path):
    loading = Loading(tmp_path)
    yield loading
    loading.close()


class RaisesInClose(Echo):
    """Raises when it is closed."""

    def close(self):
        super().close()
        raise ValueError("can't close")


# Load at the start.


def test_newest_version_is_loaded_once_and_served(loading):
    """No other version is loaded, and a second start or a scan loads nothing."""
    loading.add("flowers", 9)
    loading.add("flowers", 10)
    for _ in range(2):
        loading.load()
    loading.rescan()
    assert loading.answers() == 10
    assert loading.opened == [("flowers", "10")]
    assert loading.observed == [("flowers", "10")]


def test_labeled_versions_are_served_beside_the_newest(loading):
    """The versions of labels and the newest one are loaded, and no other."""
    for version in (1, 2, 3, 4):
        loading.add("flowers", version)
    loading.configure("flowers", "[labels]\nstable = 1\ncanary = 3")
    loading.load()
    assert loading.serving("flowers") == {1, 3, 4}
    assert loading.answers() == 4
    assert loading.answers(label="stable") == 1


def test_version_with_the_most_traffic_is_loaded_first(loading):
    """A version with little traffic never has to serve all of it."""
    for version in (1, 2):
        loading.add("flowers", version)
    loading.configure(
        "flowers",
        "[labels]\nstable = 1\ncanary = 2\n[traffic]\nstable = 9\ncanary = 1",
    )
    loading.load()
    assert [version for _, version in loading.opened] == ["1", "2"]


def test_default_model_is_loaded_first(tmp_path):
    """The other models follow in the order of their names."""
    loading = Loading(tmp_path, default_model="pears")
    for name in ("apples", "pears", "plums"):
        loading.add(name)
    loading.load()
    assert [name for name, _ in loading.opened] == ["pears", "apples", "plums"]
    loading.loader.close(TIMEOUT_S)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(ModelLoadError("no file"), "no file", id="load error"),
        pytest.param(
            ModelLoadError("no X in binary running on vm. <Net object at 0x7f12>"),
            "no X. <Net object>",
            id="load error with names of the machine",
        ),
        pytest.param(
            ValueError("secret"), "failed to load (ValueError)", id="exception"
        ),
        pytest.param(
            SystemExit("secret"), "failed to load (SystemExit)", id="system exit"
        ),
    ],
)
def test_model_that_fails_to_load_is_not_ready_and_others_serve(loading, error, reason):
    """The reason is shown; that of an unknown exception is its class alone."""
    loading.add("apples")
    loading.add("broken", engine=error)
    loading.add("pears")
    catalog = loading.load()
    assert [model.name for model in catalog.models()] == ["apples", "pears"]
    assert catalog.not_ready() == {"broken": reason}
    assert catalog.is_ready()
    with pytest.raises(NotReady), catalog.lease(Target("broken")):
        pass


def test_previous_version_serves_if_the_newest_fails_at_the_start(loading):
    """The newest version that can be loaded serves."""
    loading.add("flowers", 1)
    loading.add("flowers", 2)
    loading.add("flowers", 3, ModelLoadError("no file"))
    catalog = loading.load()
    assert loading.serving("flowers") == {2}
    assert catalog.not_ready() == {}
    assert catalog.problems() == {"flowers": ["version 3: no file"]}


def test_model_without_version_basket_toml_or_folder_to_read_is_not_ready(loading):
    """The reason says what is missing, and other models serve."""
    (loading.folder / "empty").mkdir()
    loading.hide("hidden")
    loading.add("plums")
    loading.configure("plums", "size = 3")
    loading.add("pears")
    reasons = loading.load().not_ready()
    assert "unknown key 'size'" in reasons.pop("plums")
    assert reasons == {
        "empty": "has no version folder: `mkdir $BASKET_MODEL_DIR/empty/1`, and save "
        "its model as $BASKET_MODEL_DIR/empty/1/model.keras",
        "hidden": UNREADABLE,
    }
    assert loading.opened == [("pears", "1")]
    assert loading.answers("pears") == 1


def test_label_without_its_version_is_a_problem(loading):
    """The model serves."""
    loading.add("flowers")
    loading.configure("flowers", "[labels]\nstable = 7")
    catalog = loading.load()
    assert catalog.not_ready() == {}
    assert catalog.problems() == {
        "flowers": ["label stable names version 7, and there is none"]
    }


def test_basket_toml_sets_the_limits_of_its_model(loading):
    """The maximum batch size is that of basket.toml."""
    engine = loading.add("flowers")
    loading.configure("flowers", "max_batch_size = 2")
    with loading.load().lease(Target()) as model:
        one = job(1, 2, 3)
        model.runner.submit(one)
        assert answered(one) == [1, 2, 3]
    assert [len(batch) for batch in engine.batches][-2:] == [2, 1]


def test_model_is_loading_from_the_start(loading):
    """A model that is not loaded yet is known."""
    engine = loading.add("flowers", engine=Blocks())
    loading.loader.start()
    engine.wait_until_started()
    assert loading.catalog.not_ready() == {"flowers": "is loading"}
    assert loading.catalog.status("flowers")[0].state is State.LOADING
    assert not loading.loader.wait(0)
    engine.unblock()
    assert loading.loader.wait(TIMEOUT_S)
    assert loading.catalog.not_ready() == {}


# Changes while the server runs.


def test_hot_swap_serves_the_new_version_and_closes_the_old_one(loading):
    """The old version is unknown afterwards."""
    old = loading.add("flowers", 1)
    loading.load()
    new = loading.add("flowers", 2)
    loading.rescan()
    assert loading.answers() == 2
    assert loading.serving("flowers") == {2}
    assert (old.closed, new.closed) == (1, 0)
    with pytest.raises(UnknownModel):
        loading.answers(version=1)


def test_hot_swap_finishes_jobs_of_the_old_version(loading):
    """The old engine is closed after its last job."""
    old = loading.add("flowers", 1, Blocks())
    old.unblock()
    loading.load()
    old.block()
    loading.add("flowers", 2)
    with loading.catalog.lease(Target()) as model:
        one = job(7)
        model.runner.submit(one)
        old.wait_until_started()
        swap = threading.Thread(target=loading.rescan)
        swap.start()
        wait_until(lambda: loading.serving("flowers") == {2}, TIMEOUT_S)
        assert loading.answers() == 2
        assert old.closed == 0
        old.unblock()
        assert answered(one) == [7]
    swap.join(TIMEOUT_S)
    assert old.closed == 1


def test_failed_new_version_leaves_the_old_one_serving(loading):
    """The model is ready, and the error is shown until the version is removed."""
    loading.add("flowers", 1)
    loading.load()
    loading.add("flowers", 2, ModelLoadError("no file"))
    loading.rescan()
    assert loading.answers() == 1
    assert loading.catalog.not_ready() == {}
    assert loading.catalog.problems() == {"flowers": ["version 2: no file"]}
    loading.remove("flowers", 2)
    loading.rescan()
    assert loading.catalog.problems() == {}
    assert len(loading.catalog.status("flowers")) == 1


def test_failed_version_is_tried_again_when_a_file_changes(loading):
    """Without a change it is not tried again."""
    loading.add("flowers", 1, ModelLoadError("half a file"))
    loading.load()
    loading.rescan()
    assert len(loading.opened) == 1
    loading.engines["flowers", "1"] = Echo()
    (loading.folder / "flowers" / "1" / "model.keras").touch()
    loading.rescan()
    assert loading.answers() == 1
    assert loading.catalog.problems() == {}


def test_version_that_is_being_copied_is_tried_once_per_scan(loading):
    """The previous version and other models are loaded meanwhile."""
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


def test_version_whose_server_is_away_is_tried_at_each_scan(
    loading, caplog, monkeypatch
):
    """It is served once the server answers, and its error is logged once."""
    standing_clock(monkeypatch, "app.repository.loading.loads")
    loading.add("m", 1)
    loading.add("m", 2, NotYetLoadable("the server is away"))
    loading.load()
    for _ in range(2):
        loading.rescan()
    assert loading.answers("m") == 1
    assert loading.opened.count(("m", "2")) == 3
    assert caplog.text.count("the server is away") == 1
    loading.engines["m", "2"] = Echo()
    loading.rescan()
    assert loading.answers("m") == 2
    loading.rescan()
    assert loading.opened.count(("m", "2")) == 4


@pytest.mark.parametrize(("took_s", "pause_s"), [(3, 30), (20, 60)])
def test_slow_failure_delays_the_next_try_but_no_load_request(
    loading, monkeypatch, took_s, pause_s
):
    """The pause is ten times as long as the try, but at most a minute."""
    clock = standing_clock(monkeypatch, "app.repository.loading.loads")

    def no_answer(_):
        clock.now += took_s
        raise NotYetLoadable("no answer")

    loading.add("m", 1, no_answer)
    loading.load()
    for passed_s, tries in ((pause_s - 1, 1), (1, 2), (1, 2)):
        clock.now += passed_s
        loading.rescan()
        assert len(loading.opened) == tries
    loading.engines["m", "1"] = Echo()
    loading.loader.load("m", TIMEOUT_S)
    assert loading.serving("m") == {1}


@pytest.mark.parametrize("has_new_version", [True, False])
def test_overwritten_version_is_a_problem_until_it_is_loaded_again(
    loading, caplog, has_new_version
):
    """The old content serves, until a new version or a load request replaces it."""
    loading.add("flowers", 1)
    file = loading.folder / "flowers" / "1" / "model.keras"
    file.write_text("1")
    loading.load()
    loading.rescan()
    assert loading.catalog.problems() == {}
    file.write_text("12")
    loading.rescan()
    loading.rescan()
    problem = (
        "version 1 has changed since it was loaded, and the old content answers: write "
        "a new version, such as 2"
    )
    assert loading.catalog.problems() == {"flowers": [problem]}
    assert loading.catalog.not_ready() == {}
    assert caplog.text.count(problem) == 1
    if has_new_version:
        loading.add("flowers", 2)
        loading.rescan()
    else:
        loading.loader.unload("flowers", TIMEOUT_S)
        loading.loader.load("flowers", TIMEOUT_S)
    loading.rescan()
    assert loading.catalog.problems() == {}


def test_scan_does_not_restart_an_unchanged_traffic_split(loading, monkeypatch):
    """Requests are split evenly across scans."""
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


def test_previous_version_serves_when_the_newest_is_removed(loading):
    """The previous version is loaded first."""
    loading.add("flowers", 1)
    new = loading.add("flowers", 2)
    loading.load()
    loading.remove("flowers", 2)
    loading.rescan()
    assert loading.answers() == 1
    assert new.closed == 1


def test_model_is_loaded_and_unloaded_with_its_folder(loading):
    """A model whose folder is removed is unknown."""
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


def test_moved_label_follows_after_the_load(loading):
    """A label moves to another version once that is ready."""
    for version in (1, 2, 3):
        loading.add("flowers", version)
    loading.configure("flowers", "[labels]\nstable = 1")
    loading.load()
    loading.configure("flowers", "[labels]\nstable = 2")
    loading.rescan()
    assert loading.answers(label="stable") == 2
    assert loading.serving("flowers") == {2, 3}
    assert loading.engines["flowers", "1"].closed == 1


def test_broken_basket_toml_leaves_the_model_serving(loading):
    """The error is shown as a problem."""
    loading.add("flowers", 1)
    loading.configure("flowers", "[labels]\nstable = 1")
    loading.load()
    loading.configure("flowers", "[labels")
    loading.rescan()
    assert loading.answers(label="stable") == 1
    assert loading.catalog.not_ready() == {}
    assert "basket.toml" in loading.catalog.problems()["flowers"][0]


def test_unreadable_model_folder_leaves_the_model_serving(loading):
    """Other models are loaded and unloaded."""
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
    assert catalog.problems() == {"apples": [UNREADABLE]}


def test_unreadable_root_folder_leaves_all_models_serving(loading, caplog):
    """The problem is shown for each model, and logged once."""
    for name in ("flowers", "pears"):
        loading.add(name)
    catalog = loading.load()
    moved = loading.folder.rename(loading.folder.with_name("moved"))
    for _ in range(2):
        loading.rescan()
    reason = "can't be read now: No such file or directory"
    problem = f"{loading.folder} {reason}"
    assert loading.answers("flowers") == 1
    shown = [f"$BASKET_MODEL_DIR {reason}"]
    assert catalog.problems() == {"flowers": shown, "pears": shown}
    assert caplog.messages.count(problem) == 1
    for change in (loading.loader.load, loading.loader.unload):
        with pytest.raises(NotReady, match="folder of models can't be read now: No"):
            change("flowers")
    moved.rename(loading.folder)
    loading.unloaded.add("pears")
    loading.rescan()
    assert catalog.problems() == {}
    loading.folder.rename(moved)
    loading.rescan()
    assert caplog.messages.count(problem) == 2


def test_scan_that_fails_is_a_problem_of_the_folder(loading, monkeypatch):
    """Readiness shows it, as new versions are not loaded meanwhile."""
    loading.add("flowers")
    catalog = loading.load()
    with monkeypatch.context() as patched:
        patched.setattr("app.repository.scan.read_folder", lambda *_: 1 // 0)
        loading.rescan()
        problem = "can't be scanned: the server's log has more"
        assert catalog.problems() == {"BASKET_MODEL_DIR": [problem]}
    loading.rescan()
    assert catalog.problems() == {}


def test_missing_default_model_is_logged_once(tmp_path, caplog):
    """The log lists the models that exist."""
    loading = Loading(tmp_path, default_model="pear")
    for name in ("pears", "apples"):
        loading.add(name)
    loading.load()
    loading.rescan()
    warning = f"default model 'pear' is not in {tmp_path}; there are: apples, pears"
    assert caplog.messages.count(warning) == 1
    loading.add("pear")
    caplog.clear()
    loading.rescan()
    assert "default model" not in caplog.text
    loading.remove("pear", 1)
    (tmp_path / "pear").rmdir()
    loading.rescan()
    assert caplog.messages.count(warning) == 1
    loading.loader.close(TIMEOUT_S)


def test_several_models_without_a_default_log_no_warning(loading, caplog):
    """No default is set, so none is missing."""
    for name in ("apples", "pears"):
        loading.add(name)
    loading.load()
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_empty_model_folder_is_not_ready_and_logged_once(loading, caplog):
    """The text says what to do."""
    for _ in range(2):
        loading.load()
    loading.rescan()
    text = (
        "holds no model; save a model as $BASKET_MODEL_DIR/NAME/1/model.keras, or "
        "serve a single file with BASKET_MODEL=my.keras"
    )
    assert caplog.messages == [f"{loading.folder}: {text}"]
    assert loading.catalog.not_ready() == {"BASKET_MODEL_DIR": text}
    loading.add("flowers")
    loading.rescan()
    assert loading.catalog.not_ready() == {}
    assert loading.catalog.problems() == {}


def test_stray_file_is_a_problem_of_the_folder_alone(loading, caplog):
    """The models are ready; without any, the file is the reason."""
    loading.add("flowers")
    file = loading.folder / "my.keras"
    file.touch()
    loading.load()
    loading.rescan()
    ((name, (problem,)),) = loading.catalog.problems().items()
    assert name == "BASKET_MODEL_DIR"
    assert problem.startswith("my.keras is in no folder: serve it alone with BASKET_M")
    assert caplog.messages.count(f"{loading.folder}: {problem}") == 1
    assert loading.catalog.not_ready() == {}
    assert loading.catalog.names() == ["flowers"]
    loading.remove("flowers", 1)
    (loading.folder / "flowers").rmdir()
    loading.rescan()
    assert loading.catalog.not_ready() == {name: f"holds no model; {problem}"}


def test_folder_is_not_empty_any_more_while_its_models_load(loading, monkeypatch):
    """A long load is no time in which a full folder is called empty."""
    (loading.folder / "my.keras").touch()
    loading.load()
    update = Reconciler.update
    seen = []

    def look(reconciler, folder):
        seen.append(loading.catalog.problems()["BASKET_MODEL_DIR"][0])
        seen.append(sorted(loading.catalog.not_ready()))
        update(reconciler, folder)

    monkeypatch.setattr(Reconciler, "update", look)
    loading.add("apples")
    loading.add("pears")
    loading.rescan()
    assert seen[0].startswith("my.keras is in no folder")
    assert seen[1] == ["apples", "pears"]


def test_unexpected_error_of_one_model_stops_no_other(loading, monkeypatch):
    """Other models are loaded, and the loader continues."""
    loading.add("apples")
    loading.add("pears")
    update = Reconciler.update

    def fail(reconciler, folder):
        if folder.name == "apples":
            raise ValueError("a bug")
        update(reconciler, folder)

    monkeypatch.setattr(Reconciler, "update", fail)
    loading.load()
    assert loading.answers("pears") == 1
    loading.rescan()


def test_failed_removal_of_a_model_is_retried(loading, monkeypatch):
    """Other models are loaded meanwhile."""
    loading.add("apples")
    catalog = loading.load()
    remove, failures = Reconciler.remove, [ValueError("a bug")]

    def fail_once(reconciler, name):
        if failures:
            raise failures.pop()
        remove(reconciler, name)

    monkeypatch.setattr(Reconciler, "remove", fail_once)
    loading.remove("apples", 1)
    (loading.folder / "apples").rmdir()
    loading.add("pears")
    loading.rescan()
    assert catalog.names() == ["apples", "pears"]
    loading.rescan()
    assert catalog.names() == ["pears"]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_unload_frees_the_cycles_of_an_engine(tmp_path, is_frozen):
    """Also if it was frozen, together with a framework that was imported after it."""
    # In a process of its own, as a collection of all tests' objects takes a second.
    program = """if True:
        import gc, pathlib, sys, weakref
        from app import memory
        from tests.support.loading import TIMEOUT_S, Loading

        memory.freeze()
        loading = Loading(pathlib.Path(sys.argv[1]))
        engine = loading.add("flowers")
        engine.itself = engine
        loading.load()
        if sys.argv[2] == "True":
            memory.freeze()
        assert str(memory.is_frozen(engine)) == sys.argv[2]
        reference = weakref.ref(engine)
        del engine
        loading.engines.clear()
        loading.loader.unload("flowers", TIMEOUT_S)
        assert reference() is None
        assert memory.is_frozen(memory)
        loading.close()
        """
    run_python("-c", program, str(tmp_path), str(is_frozen))


def test_swap_within_a_version_frees_the_cycles_of_a_frozen_engine(tmp_path):
    """A version whose basket.toml has changed is loaded again, and replaced."""
    program = """if True:
        import pathlib, sys, weakref
        from app import memory
        from tests.support.engines import Echo
        from tests.support.loading import Loading

        loading = Loading(pathlib.Path(sys.argv[1]))
        engine = loading.add("flowers")
        engine.itself = engine
        loading.load()
        memory.freeze()
        reference = weakref.ref(engine)
        del engine
        loading.engines["flowers", "1"] = Echo()
        loading.configure("flowers", "max_batch_size = 3")
        loading.rescan()
        assert len(loading.opened) == 2
        assert reference() is None
        loading.close()
        """
    run_python("-c", program, str(tmp_path))


def test_garbage_is_collected_once_per_load_swap_and_unload(loading, monkeypatch):
    """A scan without changes collects nothing."""
    collections = []
    monkeypatch.setattr("app.memory.collect", lambda **how: collections.append(how))
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


# Load and unload requests.


def test_unloaded_model_stays_unloaded_until_a_load_request(loading):
    """Scans do not load it, whichever worker has unloaded it."""
    first = loading.add("flowers")
    loading.load()
    loading.loader.unload("flowers", TIMEOUT_S)
    assert first.closed == 1
    loading.rescan()
    assert loading.catalog.unavailable_reason("flowers") == "is unloaded"
    loading.loader.load("flowers", TIMEOUT_S)
    assert loading.answers() == 1
    assert len(loading.opened) == 2
    # As another worker does.
    loading.unloaded.add("flowers")
    loading.rescan()
    assert loading.catalog.unavailable_reason("flowers") == "is unloaded"


def test_load_during_an_unload_is_not_ready(loading, monkeypatch):
    """The load request gets a 503, not a failure."""
    loading.add("flowers")
    loading.load()
    rescan = loading.loader.rescan

    def unloaded_meanwhile(timeout_s):
        loading.unloaded.add("flowers")
        return rescan(timeout_s)

    monkeypatch.setattr(loading.loader, "rescan", unloaded_meanwhile)
    with pytest.raises(NotReady, match="'flowers' was unloaded again"):
        loading.loader.load("flowers", TIMEOUT_S)


def test_load_request_tries_a_failed_model_again(loading):
    """The files of the model need not change."""
    loading.add("flowers", 1, ModelLoadError("no memory now"))
    loading.load()
    with pytest.raises(ModelFailed, match="'flowers': no memory now"):
        loading.loader.load("flowers", TIMEOUT_S)
    loading.engines["flowers", "1"] = Echo()
    loading.loader.load("flowers", TIMEOUT_S)
    assert loading.answers() == 1
    assert len(loading.opened) == 3


def test_load_and_unload_requests_are_late_after_the_timeout(loading):
    """The load or unload continues."""
    engine = loading.add("flowers", engine=Blocks())
    loading.loader.start()
    engine.wait_until_started()
    with pytest.raises(Late, match="'flowers' is still loading"):
        loading.loader.load("flowers", 0)
    with pytest.raises(Late, match="'flowers' is still unloading"):
        loading.loader.unload("flowers", 0)
    engine.unblock()
    loading.rescan()
    assert loading.catalog.unavailable_reason("flowers") == "is unloaded"


@pytest.mark.parametrize("name", ["pears", "..", ".", "", "flowers/1", "../flowers"])
def test_load_and_unload_of_unknown_names_are_refused(loading, name):
    """A path is no name of a model."""
    loading.add("flowers")
    loading.load()
    for call in (loading.loader.load, loading.loader.unload):
        with pytest.raises(UnknownModel, match="in the repository"):
            call(name, TIMEOUT_S)
    assert loading.answers() == 1


# Close.


def test_close_closes_all_models_and_refuses_requests(loading):
    """An error of one engine is ignored, and a second close does nothing."""
    engines = [loading.add("apples", engine=RaisesInClose()), loading.add("pears")]
    models = loading.load().models()
    for _ in range(2):
        loading.loader.close(TIMEOUT_S)
    assert [engine.closed for engine in engines] == [1, 1]
    for model in models:
        with pytest.raises(Stopping):
            model.runner.submit(job(1))
    for call in (loading.loader.load, loading.loader.unload):
        with pytest.raises(Stopping):
            call("pears", TIMEOUT_S)


def test_close_before_the_start_is_no_error(tmp_path):
    """A loader that has never started can be closed."""
    Loading(tmp_path).loader.close(0)


def test_model_loaded_during_the_close_is_closed(loading):
    """It is never served, and no other model is loaded."""
    engine = loading.add("apples", engine=Blocks())
    loading.add("pears")
    loading.loader.start()
    engine.wait_until_started()
    loading.loader.close(TIMEOUT_S)
    assert engine.closed == 0
    engine.unblock()
    assert loading.loader.wait(TIMEOUT_S)
    assert engine.closed == 1
    assert loading.catalog.models() == []
    assert loading.opened == [("apples", "1")]


def test_models_share_the_timeout_of_the_close(loading, monkeypatch):
    """A model gets the time that those before it have left."""
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
    """Fail, and write to the version's file as long as it has less than 5 bytes."""
    file = folder / "model.keras"
    written = file.read_bytes() if file.exists() else b""
    if len(written) < 5:
        file.write_bytes(written + b"-")
    raise ModelLoadError("half a file")
