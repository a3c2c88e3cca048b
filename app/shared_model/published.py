"""The model process's catalog, which each web worker has a copy of.

Each change goes to all web workers with a number, and a web worker acknowledges it
once it has no request left for what has gone. A version is closed only after all
have: no request can be on its way to it any more.
"""

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from app.repository.catalog import Catalog
from app.repository.routing import Routes
from app.repository.served import ServedModel
from app.settings import Settings
from app.shared_model import snapshot


class Watcher(Protocol):
    """A web worker that is shown what there is."""

    def tell(self, meta: Mapping[str, Any]) -> None:
        """Send it these values, without waiting."""
        ...


class PublishedCatalog(Catalog):
    """A Catalog that shows web workers what it holds."""

    def __init__(self, settings: Settings) -> None:
        """Store what a version's own settings are compared with."""
        super().__init__(settings.default_model)
        self._settings = settings
        # The last change that each web worker has taken in.
        self._watchers: dict[Watcher, int] = {}
        self._shown: dict[str, Any] = {}
        self._revision = 0
        self._described: dict[str, dict[int, dict[str, Any]]] = {}
        self._publishing = threading.Condition(threading.RLock())

    def find(self, name: str, version: int) -> ServedModel | None:
        """A version, also while it is retired; None: it is not here."""
        with self._changing:
            model = self._models.get(name)
            found = model.versions.get(version) if model else None
            return found.served if found else None

    def watch(self, watcher: Watcher) -> None:
        """Show a web worker what is there now, and each change until `unwatch`."""
        with self._publishing:
            self._publish()
            self._watchers[watcher] = 0
            self._show(watcher)

    def saw(self, watcher: Watcher, revision: int) -> None:
        """A web worker has taken in this change and all before."""
        with self._publishing:
            self._watchers[watcher] = revision
            self._publishing.notify_all()

    def unwatch(self, watcher: Watcher) -> None:
        """A web worker has gone, if it ever watched."""
        with self._publishing:
            self._watchers.pop(watcher, None)
            self._publishing.notify_all()

    def wait_until_seen(self, timeout_s: float) -> bool:
        """Block until all web workers have taken in what is there now."""
        with self._publishing:
            revision = self._revision
            return self._publishing.wait_for(
                lambda: all(seen >= revision for seen in self._watchers.values()),
                timeout_s,
            )

    def wait_until_unwatched(self, timeout_s: float) -> bool:
        """Block until no web worker is left."""
        with self._publishing:
            return self._publishing.wait_for(lambda: not self._watchers, timeout_s)

    # What the loader says, to be passed on.

    def expect(self, name: str) -> None:
        """As in Catalog."""
        super().expect(name)
        self._publish()

    def route(self, name: str, routes: Routes) -> None:
        """As in Catalog."""
        super().route(name, routes)
        self._publish()

    def begin(self, name: str, version: int) -> None:
        """As in Catalog."""
        super().begin(name, version)
        self._publish()

    def add(self, served: ServedModel) -> None:
        """As in Catalog."""
        described = snapshot.of_served(served, self._settings)
        with self._publishing:
            self._described.setdefault(served.name, {})[served.version] = described
        super().add(served)
        self._publish()

    def fail(self, name: str, version: int, reason: str) -> None:
        """As in Catalog."""
        super().fail(name, version, reason)
        self._publish()

    def note(self, name: str, problem: str) -> bool:
        """As in Catalog."""
        is_new = super().note(name, problem)
        self._publish()
        return is_new

    def settle(self, name: str) -> None:
        """As in Catalog."""
        super().settle(name)
        self._publish()

    def retire(self, name: str, version: int, timeout_s: float) -> ServedModel | None:
        """As in Catalog; the leases are with the web workers."""
        served = super().retire(name, version, timeout_s)
        self._publish()
        self.wait_until_seen(timeout_s)
        return served

    def forget(self, name: str, version: int | None = None) -> None:
        """As in Catalog."""
        super().forget(name, version)
        with self._publishing:
            if version is None:
                self._described.pop(name, None)
            else:
                self._described.get(name, {}).pop(version, None)
        self._publish()

    def mark_unloaded(self, name: str) -> None:
        """As in Catalog."""
        super().mark_unloaded(name)
        self._publish()

    def _publish(self) -> None:
        with self._publishing:
            with self._changing:
                shown = {
                    name: snapshot.of_model(model, self._described.get(name, {}))
                    for name, model in self._models.items()
                }
            if shown == self._shown:
                return
            self._shown = shown
            self._revision += 1
            for watcher in self._watchers:
                self._show(watcher)

    def _show(self, watcher: Watcher) -> None:
        watcher.tell({"revision": self._revision, "models": self._shown})
