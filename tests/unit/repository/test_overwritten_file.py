"""A single file that is overwritten while it is served."""

import os
import threading
import time
import zipfile
from types import SimpleNamespace

import pytest

from app.errors import ModelLoadError
from app.repository import single_model
from app.repository.catalog import Catalog
from app.repository.loading.opener import Opener
from app.repository.routing import Target
from app.settings import Settings
from tests.support.engines import Echo
from tests.support.jobs import Notes, answered, job
from tests.support.loading import TIMEOUT_S
from tests.support.rollouts import loader_of


class Serving:
    """A Loader of one file; each content of the file has an engine or an error."""

    def __init__(self, file, model=None):
        self.file = file
        self.engines = {}
        self.catalog = Catalog(None)
        settings = Settings(model=model or file, max_batch_size=4)
        opener = Opener(lambda *_: Notes(), self._open)
        self.loader = loader_of(settings, self.catalog, opener)

    def _open(self, file, _):
        del file  # it may be its folder
        with zipfile.ZipFile(self.file) as archive:
            engine = self.engines[archive.read("config.json").decode()]
        if isinstance(engine, Exception):
            raise engine
        return engine() if callable(engine) else engine

    def save(self, content, engine=None):
        """Overwrite the file, and return the engine that its content gets."""
        self.engines[content] = engine or Echo()
        with zipfile.ZipFile(self.file, "w") as archive:
            archive.writestr("config.json", content)
        return self.engines[content]

    def begin_save(self, content, engine=None):
        """Overwrite the file, less its last bytes, which make it valid."""
        self.save(content, engine)
        os.truncate(self.file, self.file.stat().st_size - 9)

    def rescan(self):
        assert self.loader.rescan(TIMEOUT_S)

    def version(self):
        """Return the version that answers a request."""
        with self.catalog.lease(Target()) as model:
            one = job(7)
            model.runner.submit(one)
            assert answered(one) == [7]
            return model.version


@pytest.fixture(name="looks")
def _looks(monkeypatch):
    """Return a permit for each look at a version's files, which have just changed.

    A scan that finds an incomplete version looks twice.
    """
    looks, look = threading.Semaphore(0), single_model.look
    clock = SimpleNamespace(now=0.0, time=lambda: clock.now)

    def note(version):
        fingerprint, changed_at = look(version)
        clock.now = changed_at + 0.5
        looks.release()
        return fingerprint, changed_at

    monkeypatch.setattr(single_model, "time", clock)
    monkeypatch.setattr(single_model, "look", note)
    return looks


def wait_for(looks, count):
    for _ in range(count):
        assert looks.acquire(timeout=TIMEOUT_S)


@pytest.fixture(name="serving")
def _serving(tmp_path):
    serving = Serving(tmp_path / "my.keras")
    serving.first = serving.save("1")
    serving.loader.start()
    assert serving.loader.wait(TIMEOUT_S)
    yield serving
    serving.loader.close(TIMEOUT_S)


def test_overwritten_file_replaces_the_version_before(serving):
    """The old engine is closed, and there is no problem."""
    assert serving.version() == 1
    new = serving.save("12")
    serving.rescan()
    assert serving.version() == 2
    assert (serving.first.closed, new.closed) == (1, 0)
    assert serving.catalog.problems() == {}
    assert serving.catalog.default_name() == "my"


def test_file_that_fails_to_load_leaves_the_version_before_serving(serving):
    """The reason is a problem until the file is written again."""
    serving.save("12", ModelLoadError("no layers"))
    for _ in range(2):
        serving.rescan()
        assert serving.version() == 1
        assert serving.catalog.problems() == {"my": ["version 2: no layers"]}
    serving.save("123")
    serving.rescan()
    assert serving.version() == 3
    assert serving.catalog.problems() == {}


def test_file_overwritten_during_a_reload_is_no_problem(serving, caplog):
    """Changed limits load the version again, and the next scan finds the next one."""
    serving.engines["1"] = lambda: serving.save("12")
    (serving.file.parent / "basket.toml").write_text("max_batch_size = 2")
    serving.rescan()
    assert serving.version() == 1
    serving.rescan()
    assert serving.version() == 2
    assert "has changed since" not in caplog.text


def test_edit_of_basket_toml_in_the_model_folder_is_applied(tmp_path, monkeypatch):
    """The version is loaded again with its limits, and keeps its number and label."""
    serving = Serving(tmp_path / "model.keras", model=tmp_path)
    serving.save("1", Echo)
    later = SimpleNamespace(time=lambda: time.time() + 9)
    monkeypatch.setattr(single_model, "time", later)
    toml = tmp_path / "basket.toml"
    toml.write_text("max_batch_size = 2\n[labels]\nstable = 1")
    serving.loader.start()
    assert serving.loader.wait(TIMEOUT_S)
    toml.write_text("max_batch_size = 3\n[labels]\nstable = 1")
    serving.rescan()
    with serving.catalog.lease(Target(label="stable")) as model:
        assert (model.version, model.config.settings.max_batch_size) == (1, 3)
    assert serving.catalog.problems() == {}
    serving.loader.close(TIMEOUT_S)


def test_missing_file_leaves_its_version_serving(serving):
    """The problem names the setting, and no path, as clients see it."""
    serving.file.rename(serving.file.with_name("away"))
    serving.rescan()
    assert serving.version() == 1
    (problem,) = serving.catalog.problems()["my"]
    assert problem.startswith("BASKET_MODEL: No such file or directory; expected a")
    assert serving.catalog.not_ready() == {}


def test_scan_is_not_done_while_the_file_is_written(serving, looks):
    """The version before serves without a problem, and the new one loads at the end."""
    serving.begin_save("12")
    assert not serving.loader.rescan(0.02)
    wait_for(looks, 2)
    # When the next scan begins, the one before has ended.
    assert not serving.loader.rescan(0.02)
    wait_for(looks, 2)
    assert (serving.version(), serving.catalog.problems()) == (1, {})
    serving.save("12")
    serving.rescan()
    assert serving.version() == 2


def test_incomplete_file_is_loading_at_the_start(tmp_path, looks):
    """A worker does not listen before the file is complete and loaded."""
    serving = Serving(tmp_path / "my.keras")
    serving.begin_save("1")
    serving.loader.start()
    wait_for(looks, 2)
    assert not serving.loader.wait(0.1)
    assert serving.catalog.not_ready() == {"my": "is loading"}
    serving.save("1")
    serving.rescan()
    assert serving.loader.wait(0)
    assert serving.version() == 1
    serving.loader.close(TIMEOUT_S)
