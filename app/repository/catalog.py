"""The catalog of served models: from name, version or label to a ready model.

The loader changes it, and request threads read it. A request holds a lease on its
version, so that a replaced version is closed only after its last request.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from app.errors import Stopping, UnknownModel
from app.repository.default_model import DefaultModel, known_text
from app.repository.routing import Rollout, Routes, Target
from app.repository.served import Model, ServedModel, State, Version, VersionStatus
from app.run_dir.notes import Notes
from app.settings.model_config import CaptureConfig

# The folder of models among the names of models with problems.
_MODEL_FOLDER = "BASKET_MODEL_DIR"
# Among the notes of models that were ready once: all models of the server's start have
# loaded or failed. No model has such a name.
_STARTED = ".started"


class Catalog:
    """The models by name; all methods may be called from any thread."""

    def __init__(
        self,
        default_model: str | None,
        kept: Notes | None = None,
        ready_once: Notes | None = None,
        *,
        needs_all: bool = False,
    ) -> None:
        """Store the model of requests that name none, and `kept`: see DefaultModel.

        `ready_once` are the models that were ready, in any process of the server. With
        `needs_all` the server is ready only while every model is.
        """
        self._default_model = DefaultModel(default_model, kept or Notes())
        self._ready_once = ready_once or Notes()
        self._needs_all = needs_all
        self._models: dict[str, Model] = {}
        self._folder_problem = ""
        self._closed = False
        # By name, number and label, where it is the same for all clients; emptied at
        # each change.
        self._chosen: dict[
            tuple[str | None, int | None, str | None], tuple[Version, Model]
        ] = {}
        self._changing = threading.RLock()
        self._changed = threading.Condition(self._changing)

    # Methods for request threads.

    def take(self, target: Target) -> tuple[Version, Model]:
        """Return the ready version that a request selects, and its model.

        The version is leased until `give_back`.

        Raises:
            UnknownModel: the model or version is unknown, or there is no default.
            BadInput: the label is unknown.
            NotReady: the version is loading, unloaded, or failed to load.
        """
        with self._changing:
            chosen = self._chosen.get(target[:3])
            if chosen is None:
                chosen = self._choose(target)
            chosen[0].leases += 1
        return chosen

    def give_back(self, versions: Iterable[Version]) -> None:
        """End a lease of each of these versions."""
        with self._changing:
            for version in versions:
                version.leases -= 1
                if version.state is not State.AVAILABLE:
                    self._changed.notify_all()

    @contextmanager
    def lease(self, target: Target) -> Iterator[ServedModel]:
        """Lease the ready version that a request selects, as `take` does."""
        version, _ = self.take(target)
        assert version.served is not None  # its state was AVAILABLE
        try:
            yield version.served
        finally:
            self.give_back((version,))

    def _choose(self, target: Target) -> tuple[Version, Model]:
        name = target.name or self._default_model.required(self._models)
        model = self._find(name)
        chosen = model.choose(name, target), model
        if not model.splits(target):
            self._chosen[target[:3]] = chosen
        return chosen

    def status(self, name: str) -> list[VersionStatus]:
        """Return the states of a model's versions, highest first.

        Raises:
            UnknownModel: the model is unknown.
        """
        with self._changing:
            return self._find(name).status()

    def routes(self, name: str) -> tuple[Routes, Rollout | None]:
        """Return a model's labels and traffic, and how this moves to a new version.

        Raises:
            UnknownModel: the model is unknown.
        """
        with self._changing:
            model = self._find(name)
            return model.routes, model.rollout

    def unavailable_reason(self, name: str) -> str:
        """Return why no version of a model is available, or "" if one is.

        Raises:
            UnknownModel: the model is unknown.
        """
        with self._changing:
            return self._find(name).unavailable_reason()

    def names(self) -> list[str]:
        """Return the sorted names of all models, in any state."""
        with self._changing:
            return sorted(self._models)

    def models(self) -> list[ServedModel]:
        """Return the ready versions; of each model the newest one last."""
        with self._changing:
            return [
                served
                for model in self._models.values()
                for _, served in sorted(model.available().items())
            ]

    def is_ready(self) -> bool:
        """Return whether the server is ready for requests.

        It is once all models of its start have loaded or failed and one of them serves,
        while every model that was ready once still does.
        """
        missing = self.not_ready()
        if not missing or self._needs_all or not self.models():
            return not missing
        ready_once = {note.key for note in self._ready_once.all()}
        with self._changing:
            new = self._models.keys() - ready_once
        return _STARTED in ready_once and missing.keys() <= new

    def not_ready(self) -> dict[str, str]:
        """Return the reason for each model that should be ready and is not."""
        with self._changing:
            reasons = {name: model.not_ready() for name, model in self._models.items()}
            default = self._default_model.among(self._models)
            if self._folder_problem and not self._models:
                reasons[_MODEL_FOLDER] = self._folder_problem
            elif default is not None and default not in self._models:
                reasons[default] = "is the default model and not there"
        return {name: reason for name, reason in reasons.items() if reason}

    def problems(self) -> dict[str, list[str]]:
        """Return the errors of each model that has any, and of the folder of models."""
        with self._changing:
            found = {name: model.failures() for name, model in self._models.items()}
            if self._folder_problem:
                found[_MODEL_FOLDER] = [self._folder_problem]
        return {name: texts for name, texts in found.items() if texts}

    def default_name(self) -> str | None:
        """Return the model of requests that name none: as set, the only one, or digits.

        None: it is not set, and there are several models, none of them digits.
        """
        with self._changing:
            return self._default_model.among(self._models)

    # Methods for the loader.

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Hold the lock while models change, and forget what was chosen of them."""
        with self._changing:
            self._chosen.clear()
            yield

    def keep_default(self, names: Collection[str]) -> None:
        """Keep the default model of these, whatever models come or go."""
        with self._changing:
            self._chosen.clear()
            self._default_model.keep(names)

    def note_ready(self, wanted: Collection[str]) -> None:
        """Note, for all processes, which models are ready after a scan of the folder.

        `wanted` have a folder and are not unloaded; others count no more.

        Raises:
            OSError: the run directory can't be written.
        """
        noted = {note.key for note in self._ready_once.all()}
        ready = {served.name for served in self.models()}
        for name in noted - {_STARTED, *wanted}:
            self._ready_once.discard(name)
        if ready:
            for name in {_STARTED, *ready.intersection(wanted)} - noted:
                self._ready_once.add(name)

    def announce(self, name: str) -> None:
        """Add a model without versions, or one that was unloaded, as loading."""
        with self._change():
            self._models.setdefault(name, Model()).unloaded = False

    def route(
        self, name: str, routes: Routes, capture: CaptureConfig | None = None
    ) -> None:
        """Set routes and which requests are captured; an unchanged split goes on."""
        with self._change():
            self._models[name].route(routes, capture)

    def set_rollout(self, name: str, rollout: Rollout | None) -> None:
        """Set which version of a model has the traffic, None: the newest one."""
        with self._change():
            if name in self._models:
                self._models[name].rollout = rollout

    def mark_loading(self, name: str, version: int) -> None:
        """Set the state LOADING."""
        with self._change():
            self._models[name].versions[version] = Version(State.LOADING)

    def add(self, served: ServedModel) -> Version | None:
        """Serve a version; return the one with its number, which gets no new lease.

        Raises:
            Stopping: the catalog is closed.
        """
        with self._change():
            if self._closed:
                raise Stopping("the server is stopping")
            versions = self._models.setdefault(served.name, Model()).versions
            replaced = versions.get(served.version)
            if replaced is not None:
                replaced.state = State.UNLOADING
            versions[served.version] = Version(State.AVAILABLE, served=served)
        return replaced

    def swap(self, served: ServedModel, timeout_s: float) -> ServedModel | None:
        """Serve a version, and wait for the end of leases on the one it replaces.

        Return that one, None if no version with its number was ready.

        Raises:
            Stopping: the catalog is closed.
        """
        replaced = self.add(served)
        if replaced is None:
            return None
        self.wait_until_unused(replaced, timeout_s)
        return replaced.served

    def mark_failed(self, name: str, version: int, reason: str) -> None:
        """Set the state END, with the reason why the version can't be served."""
        with self._change():
            self._models[name].versions[version] = Version(State.END, reason)

    def set_problem(self, name: str, problem: str) -> bool:
        """Set or clear ("") the error of a whole model; return whether it changed."""
        with self._change():
            is_new = self._models[name].problem != problem
            self._models[name].problem = problem
        return is_new

    def set_folder_problem(self, problem: str) -> None:
        """Set or clear ("") the error of the folder of models."""
        with self._change():
            self._folder_problem = problem

    def mark_settled(self, name: str) -> None:
        """Record that each version the folder asks for is ready or has failed."""
        with self._change():
            self._models[name].settled = True

    def retire(self, name: str, version: int, timeout_s: float) -> ServedModel | None:
        """Withdraw a version, wait for the end of its leases, and return its model.

        None: the version was not ready, so there is nothing to close.
        """
        withdrawn = self.withdraw(name, version)
        self.wait_until_unused(withdrawn, timeout_s)
        return withdrawn.served

    def withdraw(self, name: str, version: int) -> Version:
        """Set the state UNLOADING: no new lease is given."""
        with self._change():
            withdrawn = self._models[name].versions[version]
            withdrawn.state = State.UNLOADING
        return withdrawn

    def wait_until_unused(self, withdrawn: Version, timeout_s: float) -> bool:
        """Wait until a version has no lease; False: timeout."""
        with self._changing:
            return self._changed.wait_for(lambda: not withdrawn.leases, timeout_s)

    def remove(self, name: str, version: int | None = None) -> None:
        """Remove a version, or a whole model."""
        with self._change():
            if version is None:
                del self._models[name]
            else:
                del self._models[name].versions[version]

    def mark_unloaded(self, name: str) -> None:
        """Record that a model was unloaded on request."""
        with self._change():
            model = self._models.setdefault(name, Model())
            model.unloaded, model.settled, model.problem = True, False, ""

    def replicate(self, models: dict[str, Model], folder_problem: str) -> list[Version]:
        """Take over the models of another catalog, unless this one is closed.

        A Version that stays keeps its leases. Return those that had been ready and are
        gone: they get no new lease.
        """
        with self._changing:
            if self._closed:
                return []
            self._chosen.clear()
            before, self._models = self._models, models
            self._folder_problem = folder_problem
            for name in before.keys() & models.keys():
                models[name].keep_routes(before[name])
            kept = {id(each) for each in _versions(models)}
            gone = [each for each in _versions(before) if id(each) not in kept]
            gone = [each for each in gone if each.state is State.AVAILABLE]
            for version in gone:
                version.state = State.UNLOADING
        return gone

    def close(self) -> list[ServedModel]:
        """Refuse new versions from now on, and return those that are to be closed."""
        with self._changing:
            self._closed = True
        return self.models()

    def _find(self, name: str) -> Model:
        if name in self._models:
            return self._models[name]
        known = known_text(self._models)
        raise UnknownModel(f"no model {name[:80]!r}; there are: {known}")


def _versions(models: Mapping[str, Model]) -> list[Version]:
    return [version for model in models.values() for version in model.versions.values()]
