"""What is served: names, versions and labels to ready models, and who uses them.

The loader writes, request threads read. A request holds a lease on its version, so
that a version which is replaced goes only when nobody uses it any more.
"""

import threading

from app.errors import NotReady, Stopping, UnknownModel
from app.repository.routing import Routes, Target
from app.repository.served import Model, ServedModel, State, Version, VersionStatus

# The default where nobody chose one of several: the model that comes with Basket.
_USUAL = "digits"


class Lease:
    """A version that is kept from being unloaded until the block ends.

    A class, as a generator with contextlib takes three times as long.
    """

    __slots__ = ("_catalog", "_version")

    def __init__(self, version: Version, catalog: "Catalog") -> None:
        """Store a version whose leases count this one already."""
        self._version = version
        self._catalog = catalog

    def __enter__(self) -> ServedModel:
        """Give what is leased."""
        served = self._version.served
        assert served is not None  # as it was AVAILABLE
        return served

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        version, catalog = self._version, self._catalog
        with catalog._changing:
            version.leases -= 1
            if version.state is not State.AVAILABLE:
                catalog._changed.notify_all()


class Catalog:
    """The models by name. All methods may be called from any thread."""

    def __init__(self, default_model: str | None) -> None:
        """Store the name that requests without one mean; None: see `default_name`."""
        self._default_model = default_model
        self._models: dict[str, Model] = {}
        self._closed = False
        # Entered by itself, a lock takes a third of the time that its condition does.
        self._changing = threading.RLock()
        self._changed = threading.Condition(self._changing)

    # What request threads ask.

    def lease(self, target: Target) -> "Lease":
        """The ready version that a request wants, kept until the block ends.

        Raises:
            UnknownModel: no such model or version, or no name and no default.
            BadInput: no such label.
            NotReady: still loading, unloaded, or failed to load; with the reason.
        """
        with self._changing:
            name = target.name or self._default()
            version = self._choose(name, self._find(name), target)
            version.leases += 1
        return Lease(version, self)

    def status(self, name: str) -> list[VersionStatus]:
        """A model's versions, highest first.

        Raises:
            UnknownModel: no such model.
        """
        with self._changing:
            return self._find(name).status()

    def unavailable_reason(self, name: str) -> str:
        """Why a model has no version that serves; empty when it has one.

        Raises:
            UnknownModel: no such model.
        """
        with self._changing:
            return self._find(name).unavailable_reason()

    def names(self) -> list[str]:
        """All models in order, those that are not ready or unloaded too."""
        with self._changing:
            return sorted(self._models)

    def models(self) -> list[ServedModel]:
        """Each version that is ready, the default one of a name last."""
        with self._changing:
            return [
                served
                for model in self._models.values()
                for _, served in sorted(model.available().items())
            ]

    def not_ready(self) -> dict[str, str]:
        """Each model that should be served and is not, with the reason."""
        with self._changing:
            reasons = {name: model.not_ready() for name, model in self._models.items()}
            missing = {name: reason for name, reason in reasons.items() if reason}
            default = self.default_name()
            if default is not None and default not in self._models:
                missing[default] = "is the default model and not there"
        return missing

    def problems(self) -> dict[str, list[str]]:
        """All that went wrong with models, those that serve all the same too."""
        with self._changing:
            found = {name: model.failures() for name, model in self._models.items()}
        return {name: texts for name, texts in found.items() if texts}

    def default_name(self) -> str | None:
        """What requests without a name mean: as set, else the only one, else digits.

        None: nobody has set it, and there are several models without a digits.
        """
        with self._changing:
            return self._default_name()

    # What the loader says.

    def announce(self, name: str) -> None:
        """Announce a model that will be loaded."""
        with self._changing:
            self._models.setdefault(name, Model()).unloaded = False

    def route(self, name: str, routes: Routes) -> None:
        """Split a model's requests so from now on; a split that is so goes on."""
        with self._changing:
            model = self._models[name]
            if not routes.is_like(model.routes):
                model.routes = routes

    def mark_loading(self, name: str, version: int) -> None:
        """Show a version as loading."""
        with self._changing:
            self._models[name].versions[version] = Version(State.LOADING)

    def add(self, served: ServedModel) -> None:
        """Serve a version from now on.

        Raises:
            Stopping: the catalog is closed.
        """
        with self._changing:
            if self._closed:
                raise Stopping("the server is stopping")
            versions = self._models.setdefault(served.name, Model()).versions
            versions[served.version] = Version(State.AVAILABLE, served=served)

    def mark_failed(self, name: str, version: int, reason: str) -> None:
        """Keep the reason for which a version can't be served."""
        with self._changing:
            self._models[name].versions[version] = Version(State.END, reason)

    def set_problem(self, name: str, problem: str) -> bool:
        """Keep what is wrong with a whole model, empty: nothing; say if it is new."""
        with self._changing:
            is_new = self._models[name].problem != problem
            self._models[name].problem = problem
        return is_new

    def mark_settled(self, name: str) -> None:
        """Note that the model stands as its folder wants it, as far as it can."""
        with self._changing:
            self._models[name].settled = True

    def retire(self, name: str, version: int, timeout_s: float) -> ServedModel | None:
        """Withdraw a version, wait until nobody has it; what to close, if any."""
        withdrawn = self.withdraw(name, version)
        self.wait_until_unused(withdrawn, timeout_s)
        return withdrawn.served

    def withdraw(self, name: str, version: int) -> Version:
        """Give a version to nobody from now on."""
        with self._changing:
            withdrawn = self._models[name].versions[version]
            withdrawn.state = State.UNLOADING
            return withdrawn

    def wait_until_unused(self, withdrawn: Version, timeout_s: float) -> bool:
        """Block until nobody has the version; False: time ran out."""
        with self._changing:
            return self._changed.wait_for(lambda: not withdrawn.leases, timeout_s)

    def remove(self, name: str, version: int | None = None) -> None:
        """Drop a version that is no more, or a whole model."""
        with self._changing:
            if version is None:
                del self._models[name]
            else:
                del self._models[name].versions[version]

    def mark_unloaded(self, name: str) -> None:
        """Note that a model is not served because somebody wants it so."""
        with self._changing:
            model = self._models.setdefault(name, Model())
            # To be loaded again it starts anew.
            model.unloaded, model.settled, model.problem = True, False, ""

    def close(self) -> list[ServedModel]:
        """Take no more versions in; those that have to be closed."""
        with self._changing:
            self._closed = True
        return self.models()

    def _default_name(self) -> str | None:
        if self._default_model is not None:
            return self._default_model
        if len(self._models) == 1:
            return next(iter(self._models))
        return _USUAL if _USUAL in self._models or not self._models else None

    def _default(self) -> str:
        name = self._default_name()
        if name is not None:
            return name
        raise UnknownModel(
            f"there are several models, and none is the default: {self._known()}; "
            "set BASKET_DEFAULT_MODEL or ask /v1/models/NAME:predict"
        )

    def _find(self, name: str) -> Model:
        if name in self._models:
            return self._models[name]
        raise UnknownModel(f"no model {name[:80]!r}; there are: {self._known()}")

    def _known(self) -> str:
        return ", ".join(sorted(self._models)) or "none"

    def _choose(self, name: str, model: Model, target: Target) -> Version:
        available = model.available()
        number = model.routes.choose(target, available) if model.versions else None
        if number is None:
            raise NotReady(f"model {name!r}: {model.unavailable_reason()}")
        if number not in available:
            raise model.refusal(name, number)
        return model.versions[number]
