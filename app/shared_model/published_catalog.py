"""A model process's catalog, which each web worker has a replica of.

Each change is sent to all web workers with a revision number. A web worker acknowledges
a revision once no request of its own uses what the change has removed. A version is
closed only after all web workers have, so no call for it can arrive any more.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from app.engines.base import Signature
from app.repository.catalog import Catalog
from app.repository.served import Model, ServedModel, State, Version
from app.run_dir.notes import Notes
from app.settings import Settings
from app.settings.model_config import OWN_SETTINGS, ModelConfig


@dataclass(frozen=True)
class PublishedVersion:
    """What a web worker needs of a ready version.

    The settings in `config` are the model's own, over defaults. `service` is the folder
    of a service.py that has functions or an EXAMPLE; one that only imports does so
    where the model runs.
    """

    platform: str
    signatures: Mapping[str, Signature]
    config: ModelConfig
    service: Path | None = None

    @classmethod
    def of(cls, served: ServedModel) -> "PublishedVersion":
        """Return what is published of a version."""
        config, code = served.config, served.user_code
        own = {name: getattr(config.settings, name) for name in OWN_SETTINGS}
        config = ModelConfig(
            Settings(**own), config.labels, config.traffic, config.image
        )
        service = None
        if code is not None and code.service.has_parts:
            service = code.service.folder.absolute()
        return cls(served.platform, served.signatures, config, service)


@dataclass(frozen=True)
class PublishedState:
    """A version's number and state; it is `served` if it is ready."""

    number: int
    state: State
    error: str = ""
    served: PublishedVersion | None = None


@dataclass(frozen=True)
class PublishedModel:
    """A model without its versions, and these as they are published."""

    model: Model
    versions: tuple[PublishedState, ...] = ()

    @classmethod
    def of(cls, model: Model) -> "PublishedModel":
        """Return the present state of a model."""
        versions = [
            PublishedState(
                number,
                version.state,
                version.error,
                PublishedVersion.of(version.served) if version.served else None,
            )
            for number, version in model.versions.items()
        ]
        return cls(replace(model, versions={}), tuple(versions))


@dataclass(frozen=True)
class CatalogState:
    """The models by name, and what is wrong with their folder."""

    models: Mapping[str, PublishedModel]
    folder_problem: str = ""


# Sends a message to a web worker that has a replica of the catalog, without waiting.
Send: TypeAlias = Callable[[Mapping[str, Any]], None]


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
        self._subscribers: dict[Send, int] = {}
        self._published = CatalogState({})
        self._revision = 0
        self._publishing = threading.Condition(threading.RLock())

    def find(self, name: str, version: int) -> ServedModel | None:
        """Return a version, even while it is retired, or None if it is unknown."""
        with self._changing:
            model = self._models.get(name)
            found = model.versions.get(version) if model else None
            return found.served if found else None

    def subscribe(self, send: Send) -> None:
        """Send the current state, and each change until `unsubscribe`."""
        with self._publishing:
            self._publish()
            self._subscribers[send] = 0
            self._send(send)

    def acknowledge(self, send: Send, revision: int) -> None:
        """Record that a subscriber has applied this revision and all before."""
        with self._publishing:
            self._subscribers[send] = revision
            self._publishing.notify_all()

    def unsubscribe(self, send: Send) -> None:
        """Remove a web worker that has disconnected, if it has subscribed."""
        with self._publishing:
            self._subscribers.pop(send, None)
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

    def wait_until_unused(self, withdrawn: Version, timeout_s: float) -> bool:
        """Wait until no web worker uses a version, or can send a job for it.

        Jobs that were sent before an acknowledgment have been submitted by then.
        """
        return not withdrawn.served or self.wait_until_acknowledged(timeout_s)

    @contextmanager
    def _change(self) -> Iterator[None]:
        with super()._change():
            yield
        self._publish()

    def _publish(self) -> None:
        with self._publishing:
            with self._changing:
                models = {
                    name: PublishedModel.of(model)
                    for name, model in self._models.items()
                }
                state = CatalogState(models, self._folder_problem)
            if state == self._published:
                return
            self._published = state
            self._revision += 1
            for send in self._subscribers:
                self._send(send)

    def _send(self, send: Send) -> None:
        send({"revision": self._revision, "catalog": self._published})
