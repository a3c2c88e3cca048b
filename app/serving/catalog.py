"""Name and version to a ready model, and the state of those that aren't."""

import threading
from dataclasses import dataclass

from app.engines.base import Signature
from app.errors import NotReady, UnknownModel
from app.serving.batcher import Runner
from app.serving.execution import Observer


@dataclass(frozen=True)
class ServedModel:
    """A version that is loaded, warm and taking jobs."""

    name: str
    version: str
    signature: Signature
    runner: Runner
    observer: Observer


class Catalog:
    """What is served, by name. The loader writes, request threads read."""

    def __init__(self, default_model: str | None) -> None:
        """Store the name that requests without one mean; None: see `default_name`."""
        self._default_model = default_model
        self._ready: dict[str, ServedModel] = {}
        # Names that should be served and are not, with the reason.
        self._missing: dict[str, str] = {}
        self._lock = threading.Lock()

    def expect(self, name: str) -> None:
        """Announce a model that will be loaded."""
        with self._lock:
            self._missing[name] = "is loading"

    def add(self, model: ServedModel) -> None:
        """Serve a model from now on."""
        with self._lock:
            self._missing.pop(model.name, None)
            self._ready[model.name] = model

    def fail(self, name: str, reason: str) -> None:
        """Keep the reason for which a model can't be served."""
        with self._lock:
            self._missing[name] = reason

    def find(self, name: str | None = None) -> ServedModel:
        """The ready model of that name, or the default one.

        Raises:
            UnknownModel: no such name.
            NotReady: still loading, or failed to load; with the reason.
        """
        with self._lock:
            wanted = name or self.default_name()
            if wanted in self._ready:
                return self._ready[wanted]
            if wanted in self._missing:
                raise NotReady(f"model {wanted!r}: {self._missing[wanted]}")
            known = ", ".join(sorted({*self._ready, *self._missing})) or "none"
        raise UnknownModel(f"no model {wanted!r}; there are: {known}")

    def missing(self) -> dict[str, str]:
        """Each model that should be served and is not, with the reason."""
        with self._lock:
            missing = dict(self._missing)
            wanted = self.default_name()
            asked_for = self._default_model is not None or not self._ready
            if asked_for and wanted not in self._ready:
                missing.setdefault(wanted, "is the default model and not there")
        return missing

    def models(self) -> list[ServedModel]:
        """All that are ready."""
        with self._lock:
            return list(self._ready.values())

    def default_name(self) -> str:
        """What requests without a name mean: as set, else the only one, else digits."""
        names = {*self._ready, *self._missing}
        if self._default_model is None and len(names) == 1:
            return next(iter(names))
        return self._default_model or "digits"
