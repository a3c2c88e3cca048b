"""A model process's catalog, which each web worker has a replica of.

Each change is sent to all web workers with a revision number. A web worker acknowledges
a revision once no request of its own uses what the change has removed. A version is
closed only after all web workers have, so no call for it can arrive any more.
"""

import threading
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from app.repository.catalog import Catalog
from app.repository.served import ServedModel
from app.run_dir.notes import Notes
from app.shared_model import catalog_json


class Subscriber(Protocol):
    """A web worker that has a replica of the catalog."""

    def send(self, meta: Mapping[str, Any]) -> None:
        """Send a message without waiting."""
        ...


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _then_publish(
    change: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[Any, _P], _T]:
    """Return a method that changes a Catalog as `change` does, and publishes it."""

    @wraps(change)
    def change_and_publish(self: Any, /, *args: _P.args, **options: _P.kwargs) -> _T:
        result = change(self, *args, **options)
        self._publish()
        return result

    return change_and_publish


class PublishedCatalog(Catalog):
    """A Catalog that sends its changes to subscribers."""

    def __init__(
        self,
        default_model: str | None,
        kept: Notes | None = None,
        ready_once: Notes | None = None,
    ) -> None:
        """Store the parts, as Catalog does."""
        super().__init__(default_model, kept, ready_once)
        # The last revision that each subscriber has acknowledged.
        self._subscribers: dict[Subscriber, int] = {}
        self._published: dict[str, Any] = {}
        self._revision = 0
        # Made once for each version: that of a thousand classes takes milliseconds.
        self._versions_json: WeakKeyDictionary[ServedModel, dict[str, Any]] = (
            WeakKeyDictionary()
        )
        self._publishing = threading.Condition(threading.RLock())

    def find(self, name: str, version: int) -> ServedModel | None:
        """Return a version, even while it is retired, or None if it is unknown."""
        with self._changing:
            model = self._models.get(name)
            found = model.versions.get(version) if model else None
            return found.served if found else None

    def subscribe(self, subscriber: Subscriber) -> None:
        """Send the current state, and each change until `unsubscribe`."""
        with self._publishing:
            self._publish()
            self._subscribers[subscriber] = 0
            self._send(subscriber)

    def acknowledge(self, subscriber: Subscriber, revision: int) -> None:
        """Record that a subscriber has applied this revision and all before."""
        with self._publishing:
            self._subscribers[subscriber] = revision
            self._publishing.notify_all()

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Remove a web worker that has disconnected, if it has subscribed."""
        with self._publishing:
            self._subscribers.pop(subscriber, None)
            self._publishing.notify_all()

    def wait_until_acknowledged(self, timeout_s: float) -> bool:
        """Wait until all subscribers have the current revision; False: timeout."""
        with self._publishing:
            revision = self._revision
            return self._publishing.wait_for(
                lambda: all(last >= revision for last in self._subscribers.values()),
                timeout_s,
            )

    def wait_until_unsubscribed(self, timeout_s: float) -> bool:
        """Wait until all web workers have disconnected; False: timeout."""
        with self._publishing:
            return self._publishing.wait_for(lambda: not self._subscribers, timeout_s)

    add = _then_publish(Catalog.add)
    remove = _then_publish(Catalog.remove)
    announce = _then_publish(Catalog.announce)
    route = _then_publish(Catalog.route)
    set_rollout = _then_publish(Catalog.set_rollout)
    mark_loading = _then_publish(Catalog.mark_loading)
    mark_failed = _then_publish(Catalog.mark_failed)
    set_problem = _then_publish(Catalog.set_problem)
    set_folder_problem = _then_publish(Catalog.set_folder_problem)
    mark_settled = _then_publish(Catalog.mark_settled)
    mark_unloaded = _then_publish(Catalog.mark_unloaded)

    def swap(self, served: ServedModel, timeout_s: float) -> ServedModel | None:
        """As in Catalog; later jobs of web workers are the new version's.

        Jobs that were sent before the acknowledgment have been submitted by then.
        """
        replaced = super().swap(served, timeout_s)
        if replaced is not None:
            self.wait_until_acknowledged(timeout_s)
        return replaced

    def retire(self, name: str, version: int, timeout_s: float) -> ServedModel | None:
        """As in Catalog; the requests that use the version are in web workers."""
        served = super().retire(name, version, timeout_s)
        self._publish()
        self.wait_until_acknowledged(timeout_s)
        return served

    def _version_json(self, served: ServedModel) -> dict[str, Any]:
        if served not in self._versions_json:
            self._versions_json[served] = catalog_json.version_to_json(served)
        return self._versions_json[served]

    def _publish(self) -> None:
        with self._publishing:
            with self._changing:
                models = {
                    name: catalog_json.model_to_json(model, self._version_json)
                    for name, model in self._models.items()
                }
                state = {"models": models, "folder_problem": self._folder_problem}
            if state == self._published:
                return
            self._published = state
            self._revision += 1
            for subscriber in self._subscribers:
                self._send(subscriber)

    def _send(self, subscriber: Subscriber) -> None:
        subscriber.send({"revision": self._revision, **self._published})
