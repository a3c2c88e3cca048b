"""Reconciliation of one model with its folder: loads, hot swaps and retirements."""

import logging
import time
from collections.abc import Collection, Iterator

from app import memory
from app.errors import SettingsError, Stopping
from app.repository.catalog import Catalog
from app.repository.loading.loads import Loads, is_outdated
from app.repository.rollouts.promotions import Promotions
from app.repository.rollouts.standing import Standing
from app.repository.routing import Routes
from app.repository.scan import ModelFolder
from app.repository.served import ServedModel, State
from app.repository.wanted import problems, usable, wanted
from app.settings.model_config import ModelConfig

_log = logging.getLogger(__name__)


class Reconciler:
    """Loads the versions that a folder asks for, then retires all others.

    A folder asks for the version of each label, and for the newest version that can be
    loaded: if a version fails, the previous one serves. With [promotion] the proven
    version serves, too. A version whose limits or [image] have changed is loaded again.
    Used by one thread.
    """

    def __init__(
        self, catalog: Catalog, loads: Loads, promotions: Promotions, drain_s: float
    ) -> None:
        """Store the parts; a replaced version is drained for at most `drain_s`."""
        self._catalog = catalog
        self._loads = loads
        self._promotions = promotions
        self._drain_s = drain_s
        self._has_garbage = self._has_frozen_garbage = False

    def update(self, folder: ModelFolder) -> None:
        """Serve the versions that a folder asks for.

        Raises:
            Stopping: the catalog is closed.
        """
        name, config = folder.name, usable(folder.config)
        if folder.is_incomplete:
            return
        if isinstance(config, SettingsError):
            # The versions that are served stay.
            self._set_problem(name, str(config))
            self._catalog.mark_settled(name)
            return
        available = self._available(name)
        if not available:
            self._route(name, config)
        # Once per update: a version that is being copied changes during its load, and
        # would be loaded again and again.
        loadable = {
            version
            for version in folder.versions
            if version in available or not self._loads.failure(folder, version, config)
        }
        standing = self._standing(folder, config, loadable)
        self._show_problems(folder, config, standing)
        while (
            version := self._next(name, wanted(loadable, standing, config))
        ) is not None:
            if not self._load(folder, version, config):
                loadable.remove(version)
                standing = self._standing(folder, config, loadable)
        self._route(name, config)
        self._retire_others(folder, standing, wanted(loadable, standing, config))
        if self._reload_outdated(folder, config):
            self._show_problems(folder, config, standing)
        self._collect_garbage()
        self._catalog.mark_settled(name)
        self._promotions.update(folder, config, standing)

    def remove(self, name: str) -> None:
        """Retire all versions of a model, and forget their failures."""
        self._promotions.remove(name)
        for status in self._catalog.status(name):
            self._retire(name, status.version)
        self._collect_garbage()
        self.retry(name)

    def retry(self, name: str) -> None:
        """Try the model's failed versions again, even if no file has changed."""
        self._loads.forget_failures(name)

    def _standing(
        self, folder: ModelFolder, config: ModelConfig, loadable: Collection[int]
    ) -> Standing:
        available = self._available(folder.name)
        return self._promotions.standing(folder, config, loadable, available)

    def close(self) -> None:
        """Stop moving traffic."""
        self._promotions.mover.close()

    def _next(self, name: str, versions: Collection[int]) -> int | None:
        available = self._available(name)
        return next((v for v in versions if v not in available), None)

    def _available(self, name: str) -> set[int]:
        return {
            status.version
            for status in self._catalog.status(name)
            if status.state is State.AVAILABLE
        }

    def _load(self, folder: ModelFolder, version: int, config: ModelConfig) -> bool:
        """Load a version, and return whether it is served."""
        name, began_at = folder.name, time.monotonic()
        self._catalog.mark_loading(name, version)
        loaded = self._loads.load(folder, version, config)
        if isinstance(loaded, str):
            self._catalog.mark_failed(name, version, loaded)
            return False
        self._serve(loaded)
        _log_ready(loaded, began_at)
        return True

    def _reload_outdated(self, folder: ModelFolder, config: ModelConfig) -> bool:
        """Load versions again whose limits or [image] have changed; return if any.

        They serve as they are until then, and if that fails.
        """
        versions = self._reloadable(folder, config)
        for version in versions:
            began_at = time.monotonic()
            loaded = self._loads.load(folder, version, config, is_served=True)
            if isinstance(loaded, ServedModel):
                old = self._serve(loaded)
                _log_ready(loaded, began_at)
                if old is not None:
                    self._close(old)
        return bool(versions)

    def _reloadable(self, folder: ModelFolder, config: ModelConfig) -> list[int]:
        outdated = {served.version for served in self._outdated(folder, config)}
        if outdated:
            # The files of an overwritten version are those of another one.
            outdated.difference_update(self._loads.overwritten(folder))
        return [
            version
            for version in sorted(outdated & folder.versions.keys())
            if not self._loads.failure(folder, version, config)
        ]

    def _outdated(
        self, folder: ModelFolder, config: ModelConfig
    ) -> Iterator[ServedModel]:
        for served in self._catalog.models():
            if served.name == folder.name and is_outdated(served, config):
                yield served

    def _serve(self, served: ServedModel) -> ServedModel | None:
        """Serve a version; return the one with its number that it replaces, unused."""
        try:
            replaced = self._catalog.swap(served, self._drain_s)
        except Stopping:
            served.close(self._drain_s)
            raise
        self._has_garbage = True
        return replaced

    def _retire(self, name: str, version: int) -> None:
        served = self._catalog.retire(name, version, self._drain_s)
        if served is not None:
            self._close(served)
            self._loads.forget_content(name, version)
            _log.info("model %s version %s is unloaded", name, version)
        self._catalog.remove(name, version)

    def _close(self, served: ServedModel) -> None:
        served.close(self._drain_s)
        self._has_garbage = True
        self._has_frozen_garbage |= memory.is_frozen(served)

    def _retire_others(
        self, folder: ModelFolder, standing: Standing, wanted: Collection[int]
    ) -> None:
        name = folder.name
        if folder.is_overwritten and not wanted:
            # The version before is only in memory.
            wanted = self._available(name)
        for status in self._catalog.status(name):
            if status.version not in wanted:
                keep = status.state is State.END and status.version in folder.versions
                if not keep:
                    self._retire(name, status.version)
        for version in standing.refused.keys() - wanted:
            reason = f"not promoted: {standing.refused[version]}"
            self._catalog.mark_failed(name, version, reason)

    def _collect_garbage(self) -> None:
        """Free unloaded models, whose graphs are reference cycles."""
        if self._has_garbage:
            memory.collect(unfreeze=self._has_frozen_garbage)
            self._has_garbage = self._has_frozen_garbage = False

    def _route(self, name: str, config: ModelConfig) -> None:
        routes = Routes(config.labels, config.traffic)
        capture = config.capture if config.settings.capture_dir else None
        self._catalog.route(name, routes, capture)

    def _show_problems(
        self, folder: ModelFolder, config: ModelConfig, standing: Standing
    ) -> None:
        found = problems(folder, config, standing)
        stale = self._stale(folder, config)
        self._set_problem(folder.name, "; ".join((*found, *stale)))

    def _stale(self, folder: ModelFolder, config: ModelConfig) -> Iterator[str]:
        """Yield the changes that loaded versions do not have: files and limits."""
        # The next scan finds the next version of a file that has changed since.
        is_next = folder.is_overwritten
        overwritten = [] if is_next else list(self._loads.overwritten(folder))
        for version in overwritten:
            yield (
                f"version {version} has changed since it was loaded, and the old "
                "content answers: write a new version, such as "
                f"{max(folder.versions) + 1}"
            )
        for served in self._outdated(folder, config):
            version, reason = served.version, "its files are not there any more"
            if version in overwritten:
                reason = "its files have changed, too"
            elif version in folder.versions:
                reason = self._loads.failure(folder, version, config)
            if reason:
                yield (
                    f"version {version} serves with basket.toml as it was before, and "
                    f"could not be loaded again: {reason}"
                )

    def _set_problem(self, name: str, text: str) -> None:
        if self._catalog.set_problem(name, text) and text:
            _log.error("model %s: %s", name, text)


def _log_ready(served: ServedModel, began_at: float) -> None:
    took_s = time.monotonic() - began_at
    _log.info(
        "model %s version %s is ready (%.1f s)", served.name, served.version, took_s
    )
