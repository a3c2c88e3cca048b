"""Reconciliation of one model with its folder: loads, hot swaps and retirements."""

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
# A load that waits for another server blocks all other loads. So the pause until its
# next try is so many times as long as the try.
_PAUSE_FACTOR = 10
_LONGEST_PAUSE_S = 60.0


class _Retry(NamedTuple):
    """The error of a load that may succeed later, and the time of the next try."""

    reason: str
    at: float

    @classmethod
    def after(cls, began_at: float, reason: str) -> "_Retry":
        """Return the retry of a load that began at a time and has failed now."""
        now = time.monotonic()
        pause_s = min(_PAUSE_FACTOR * (now - began_at), _LONGEST_PAUSE_S)
        return cls(reason, now + pause_s)


class Reconciler:
    """Loads the versions that a folder asks for, then retires all others.

    A folder asks for the version of each label, and for the newest version that can be
    loaded: if a version fails, the previous one serves. Used by one thread.
    """

    def __init__(
        self, catalog: Catalog, opener: Opener, quarantine: Quarantine, drain_s: float
    ) -> None:
        """Store the parts; a replaced version is drained for at most `drain_s`."""
        self._catalog = catalog
        self._opener = opener
        self._quarantine = quarantine
        self._drain_s = drain_s
        # By name and version: the files of versions that could not be loaded.
        self._failed: dict[tuple[str, int], Fingerprint] = {}
        # Those of them that are tried again, even if no file changes.
        self._retries: dict[tuple[str, int], _Retry] = {}
        # The files of versions that were loaded.
        self._loaded: dict[tuple[str, int], Content] = {}
        # Whether garbage must be collected.
        self._changed = False

    def update(self, folder: ModelFolder) -> None:
        """Serve the versions that a folder asks for.

        Raises:
            Stopping: the catalog is closed.
        """
        name, config = folder.name, folder.config
        if folder.is_incomplete:
            return
        if isinstance(config, SettingsError):
            # The versions that are served stay.
            self._set_problem(name, str(config))
            self._catalog.mark_settled(name)
            return
        problems = (*_problems(folder, config), *self._stale(folder, config))
        self._set_problem(name, "; ".join(problems))
        now = time.monotonic()
        for key, retry in self._retries.items():
            if key[0] == name and retry.at <= now:
                self._failed.pop(key, None)
        if not self._available(name):
            self._route(name, config)
        # Once per update: a version that is being copied changes during its load, and
        # would be loaded again and again.
        candidates = {v for v in folder.versions if not self._has_failed(folder, v)}
        while (version := self._next(name, candidates, config)) is not None:
            if not self._load(folder, version, config):
                candidates.remove(version)
        self._route(name, config)
        wanted = _wanted(candidates, config)
        if folder.is_overwritten and not wanted:
            # The version before is only in memory.
            wanted = sorted(self._available(name))
        for status in self._catalog.status(name):
            if status.version not in wanted:
                keep = status.state is State.END and status.version in folder.versions
                if not keep:
                    self._retire(name, status.version)
        self._collect_garbage()
        self._catalog.mark_settled(name)

    def remove(self, name: str) -> None:
        """Retire all versions of a model, and forget their failures."""
        for status in self._catalog.status(name):
            self._retire(name, status.version)
        self._collect_garbage()
        self.retry(name)

    def retry(self, name: str) -> None:
        """Try the model's failed versions again, even if no file has changed."""
        self._quarantine.release(name)
        for known in (self._failed, self._retries):
            for key in [key for key in known if key[0] == name]:
                del known[key]

    def _next(self, name: str, candidates: Set[int], config: ModelConfig) -> int | None:
        wanted, available = _wanted(candidates, config), self._available(name)
        return next((v for v in wanted if v not in available), None)

    def _has_failed(self, folder: ModelFolder, version: int) -> bool:
        known = self._failed.get((folder.name, version))
        return known is not None and known == fingerprint(folder.versions[version])

    def _available(self, name: str) -> set[int]:
        return {
            status.version
            for status in self._catalog.status(name)
            if status.state is State.AVAILABLE
        }

    def _load(self, folder: ModelFolder, version: int, config: ModelConfig) -> bool:
        """Load a version, and return whether it is served."""
        name, path = folder.name, folder.versions[version]
        # A retry is logged only if its reason changes.
        last_reason = self._retries.pop((name, version), _Retry("", 0)).reason
        if not last_reason:
            _log.info("loading model %s version %s", name, version)
        self._catalog.mark_loading(name, version)
        files = fingerprint(path)
        began_at = time.monotonic()
        try:
            with self._quarantine.loading(name, version, files):
                loaded = content(path, files)
                served = self._opener.open(name, version, path, config)
        except BaseException as error:  # a model may raise anything
            self._failed[name, version] = files
            reason = f"failed to load ({type(error).__name__})"
            if isinstance(error, ModelLoadError | SettingsError):
                reason = str(error)
                if reason != last_reason:
                    _log.error("model %s %s is not served: %s", name, version, reason)
            else:
                _log.exception("model %s version %s is not served", name, version)
            if isinstance(error, NotYetLoadable):
                self._retries[name, version] = _Retry.after(began_at, reason)
            self._catalog.mark_failed(name, version, reason)
            return False
        self._failed.pop((name, version), None)
        self._loaded[name, version] = loaded
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

    def _collect_garbage(self) -> None:
        """Free unloaded models, whose graphs are reference cycles."""
        if self._changed:
            self._changed = False
            collect_and_freeze()

    def _route(self, name: str, config: ModelConfig) -> None:
        self._catalog.route(name, Routes(config.labels, config.traffic))

    def _stale(self, folder: ModelFolder, config: ModelConfig) -> Iterator[str]:
        """Yield the changes that loaded versions do not have: files and limits."""
        for version, path in sorted(folder.versions.items()):
            if has_changed(self._loaded.get((folder.name, version)), path):
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

    def _set_problem(self, name: str, problem: str) -> None:
        if self._catalog.set_problem(name, problem) and problem:
            _log.error("model %s: %s", name, problem)


def close(served: ServedModel, timeout_s: float) -> None:
    """Close a model's runner, and log any error."""
    try:
        served.runner.close(timeout_s)
    except Exception:  # an engine may raise anything
        _log.exception("model %s: an error at its close", served.name)


def _wanted(candidates: Set[int], config: ModelConfig) -> list[int]:
    """Return the versions to serve, those with the most traffic first."""
    weights = dict.fromkeys(sorted(candidates, reverse=True)[:1], 0.0)
    for label, version in config.labels.items():
        if version in candidates:
            weight = config.traffic.get(label, 0.0)
            weights[version] = weights.get(version, 0.0) + weight
    return sorted(weights, key=lambda version: (-weights[version], -version))


def _problems(folder: ModelFolder, config: ModelConfig) -> Iterator[str]:
    if not folder.versions:
        yield "has no version folder, such as 1"
    for label, version in config.labels.items():
        if folder.versions and version not in folder.versions:
            yield f"label {label} names version {version}, and there is none"
    yield from folder.warnings
