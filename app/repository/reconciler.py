"""Brings one model in line with its folder: what to load, what may go."""

import logging
import time
from collections.abc import Iterator, Set
from typing import NamedTuple

from app.errors import ModelLoadError, NotYetLoadable, SettingsError, Stopping
from app.repository.catalog import Catalog
from app.repository.garbage_collection import collect_and_freeze
from app.repository.opener import Opener
from app.repository.quarantine import Quarantine
from app.repository.routing import Routes
from app.repository.scan import (
    Content,
    Fingerprint,
    ModelFolder,
    content,
    fingerprint,
    has_changed,
)
from app.repository.served import ServedModel, State
from app.settings.model_config import ModelConfig

_log = logging.getLogger(__name__)


# While a version is tried no other is, so after a try that took long, because a server
# does not answer, so many times as long passes until the next.
_PAUSE_TIMES = 10
_LONGEST_PAUSE_S = 60.0


class _Awaited(NamedTuple):
    """What a version lacked when it was last tried, and when to try it again."""

    reason: str
    again_at: float

    @classmethod
    def since(cls, began_at: float, reason: str) -> "_Awaited":
        """For a try that began then and has just failed."""
        now = time.monotonic()
        pause_s = min(_PAUSE_TIMES * (now - began_at), _LONGEST_PAUSE_S)
        return cls(reason, now + pause_s)


class Reconciler:
    """Loads what a folder wants served, then retires what it does not.

    Wanted are each version that a label names, and the newest that can be loaded: a
    version that fails leaves the one before it in place. Used by one thread.
    """

    def __init__(
        self, catalog: Catalog, opener: Opener, quarantine: Quarantine, drain_s: float
    ) -> None:
        """Store the parts; `drain_s` bounds how long a replaced version is kept."""
        self._catalog = catalog
        self._opener = opener
        self._quarantine = quarantine
        self._drain_s = drain_s
        # Versions that could not be loaded, as their folders were then.
        self._broken: dict[tuple[str, int], Fingerprint] = {}
        # Those of them that are worth another try as they are.
        self._awaited: dict[tuple[str, int], _Awaited] = {}
        # Versions that were loaded, as their folders were then.
        self._loaded: dict[tuple[str, int], Content] = {}
        # Whether a model has come or gone since the last garbage collection.
        self._changed = False

    def update(self, folder: ModelFolder) -> None:
        """Serve what the folder says.

        Raises:
            Stopping: the catalog is closed.
        """
        name, config = folder.name, folder.config
        if isinstance(config, SettingsError):
            # What is served goes on as it is.
            self._note(name, str(config))
            self._catalog.mark_settled(name)
            return
        problems = (*_problems(folder, config), *self._unread(folder, config))
        self._note(name, "; ".join(problems))
        now = time.monotonic()
        for key, awaited in self._awaited.items():
            if key[0] == name and awaited.again_at <= now:
                self._broken.pop(key, None)
        if not self._available(name):
            self._route(name, config)
        # Asked once: what grows while it is tried looks worth another try at once.
        sound = {v for v in folder.versions if not self._is_broken(folder, v)}
        while (version := self._next(name, sound, config)) is not None:
            if not self._load(folder, version, config):
                sound.remove(version)
        self._route(name, config)
        wanted = _wanted(sound, config)
        for status in self._catalog.status(name):
            if status.version not in wanted:
                keep = status.state is State.END and status.version in folder.versions
                if not keep:
                    self._retire(name, status.version)
        self._tidy()
        self._catalog.mark_settled(name)

    def remove(self, name: str) -> None:
        """Retire all versions of a model."""
        for status in self._catalog.status(name):
            self._retire(name, status.version)
        self._tidy()
        self.retry(name)

    def retry(self, name: str) -> None:
        """Try the model's broken versions again, although they have not changed."""
        self._quarantine.release(name)
        for known in (self._broken, self._awaited):
            for key in [key for key in known if key[0] == name]:
                del known[key]

    def _next(self, name: str, sound: Set[int], config: ModelConfig) -> int | None:
        available = self._available(name)
        return next((v for v in _wanted(sound, config) if v not in available), None)

    def _is_broken(self, folder: ModelFolder, version: int) -> bool:
        known = self._broken.get((folder.name, version))
        return known is not None and known == fingerprint(folder.versions[version])

    def _available(self, name: str) -> set[int]:
        return {
            status.version
            for status in self._catalog.status(name)
            if status.state is State.AVAILABLE
        }

    def _load(self, folder: ModelFolder, version: int, config: ModelConfig) -> bool:
        """Whether it serves now."""
        name, place = folder.name, folder.versions[version]
        # What is tried again and again is told once.
        lacked = self._awaited.pop((name, version), _Awaited("", 0)).reason
        if not lacked:
            _log.info("loading model %s version %s", name, version)
        self._catalog.mark_loading(name, version)
        looks = fingerprint(place)
        began_at = time.monotonic()
        try:
            with self._quarantine.loading(name, version, looks):
                before = content(place, looks)
                served = self._opener.open(name, version, place, config)
        except BaseException as error:  # a model may raise anything
            self._broken[name, version] = looks
            reason = f"failed to load ({type(error).__name__})"
            if isinstance(error, ModelLoadError | SettingsError):
                reason = str(error)
                if reason != lacked:
                    _log.error("model %s %s is not served: %s", name, version, reason)
            else:
                _log.exception("model %s version %s is not served", name, version)
            if isinstance(error, NotYetLoadable):
                self._awaited[name, version] = _Awaited.since(began_at, reason)
            self._catalog.mark_failed(name, version, reason)
            return False
        self._broken.pop((name, version), None)
        self._loaded[name, version] = before
        self._serve(served)
        took_s = time.monotonic() - began_at
        _log.info("model %s version %s is ready (%.1f s)", name, version, took_s)
        return True

    def _serve(self, served: ServedModel) -> None:
        try:
            self._catalog.add(served)
        except Stopping:
            close(served, self._drain_s)
            raise
        self._changed = True

    def _retire(self, name: str, version: int) -> None:
        served = self._catalog.retire(name, version, self._drain_s)
        if served is not None:
            close(served, self._drain_s)
            self._changed = True
            self._loaded.pop((name, version), None)
            _log.info("model %s version %s is unloaded", name, version)
        self._catalog.remove(name, version)

    def _tidy(self) -> None:
        """Free what was unloaded: graphs refer to themselves, and would stay."""
        if self._changed:
            self._changed = False
            collect_and_freeze()

    def _route(self, name: str, config: ModelConfig) -> None:
        self._catalog.route(name, Routes(config.labels, config.traffic))

    def _unread(self, folder: ModelFolder, config: ModelConfig) -> Iterator[str]:
        """What was written after a version was loaded, which it knows nothing of."""
        for version, place in sorted(folder.versions.items()):
            if has_changed(self._loaded.get((folder.name, version)), place):
                yield (
                    f"version {version} has changed since it was loaded, and the old "
                    "content answers: write a new version, such as "
                    f"{max(folder.versions) + 1}"
                )
        for served in self._catalog.models():
            if served.name != folder.name:
                continue
            old = served.config
            if old.settings != config.settings or old.image != config.image:
                yield (
                    "basket.toml has changed since version "
                    f"{served.version} was loaded: its limits and [image] count from "
                    "the next load"
                )

    def _note(self, name: str, problem: str) -> None:
        if self._catalog.set_problem(name, problem) and problem:
            _log.error("model %s: %s", name, problem)


def close(served: ServedModel, timeout_s: float) -> None:
    """Close a model's runner; whatever it raises is logged."""
    try:
        served.runner.close(timeout_s)
    except Exception:  # an engine may raise anything
        _log.exception("model %s did not close in order", served.name)


def _wanted(sound: Set[int], config: ModelConfig) -> list[int]:
    """Which of these versions to serve; those with the most traffic first."""
    weights = dict.fromkeys(sorted(sound, reverse=True)[:1], 0.0)
    for label, version in config.labels.items():
        if version in sound:
            weight = config.traffic.get(label, 0.0)
            weights[version] = weights.get(version, 0.0) + weight
    return sorted(weights, key=lambda version: (-weights[version], -version))


def _problems(folder: ModelFolder, config: ModelConfig) -> Iterator[str]:
    if not folder.versions:
        yield "has no version folder, such as 1"
    for label, version in config.labels.items():
        if folder.versions and version not in folder.versions:
            yield f"label {label} names version {version}, and there is none"
    yield from folder.notes
