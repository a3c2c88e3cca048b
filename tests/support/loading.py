"""A Loader of a model folder, with an engine or an error for each version."""

from app import run_dir
from app.repository.catalog import Catalog
from app.repository.loading.opener import Opener
from app.repository.routing import Target
from app.repository.served import State
from app.settings import Settings
from tests.support.engines import Echo
from tests.support.jobs import Notes, answered, job
from tests.support.rollouts import loader_of, promotions_of

TIMEOUT_S = 10


class Loading:
    """A Loader that scans only when told, with an engine for each version."""

    def __init__(self, folder, *promotion, ready_once=None, **settings):
        self.folder = folder
        self.engines = {}
        self.opened = []
        self.observed = []
        self.settings = Settings(model_dir=folder, max_batch_size=4, **settings)
        self.catalog = Catalog(self.settings.default_model, None, ready_once)
        self.unloaded = run_dir.Notes()
        opener = Opener(self.observe, self.open)
        self.promotions = promotions_of(self.settings, self.catalog, *promotion)
        self.loader = loader_of(
            *(self.settings, self.catalog, opener),
            *(self.unloaded, self.promotions),
        )

    def observe(self, name, version):
        self.observed.append((name, version))
        return Notes()

    def open(self, folder, settings):
        """Return a version's engine, or call it, or raise it if it is an error."""
        del settings
        key = (folder.parent.name, folder.name)
        self.opened.append(key)
        engine = self.engines[key]
        if isinstance(engine, BaseException):
            raise engine
        return engine(folder) if callable(engine) else engine

    def add(self, name, version=1, engine=None):
        """Create a version's folder, and return its engine."""
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
        """Make a model's folder unreadable, even for root, by a link."""
        folder = self.folder / name
        if folder.exists():
            folder.rename(self.folder / f".{name}")
        folder.symlink_to("x" * 300)

    def load(self):
        self.loader.start()
        assert self.loader.wait(TIMEOUT_S)
        return self.catalog

    def rescan(self):
        assert self.loader.rescan(TIMEOUT_S)

    def serving(self, name):
        """Return the available versions of a model."""
        return {
            status.version
            for status in self.catalog.status(name)
            if status.state is State.AVAILABLE
        }

    def answers(self, name=None, **target):
        """Return the version that answers a job."""
        with self.catalog.lease(Target(name, **target)) as model:
            one = job(7)
            model.runner.submit(one)
            assert answered(one) == [7]
            return model.version

    def close(self):
        """Unblock all engines, and close the loader."""
        for engine in self.engines.values():
            if isinstance(engine, Echo):
                engine.unblock()
        self.loader.close(TIMEOUT_S)
