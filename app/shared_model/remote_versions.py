"""The versions in a web worker's catalog, whose jobs run in model processes."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from app.batching.interfaces import Observer
from app.errors import ModelLoadError, Stopping
from app.repository.catalog import Catalog
from app.repository.served import Version
from app.settings import Settings
from app.shared_model import catalog_json
from app.shared_model.channel import Channel
from app.shared_model.remote_runner import RemoteRunner

_log = logging.getLogger(__name__)
# Waits for at most so many seconds.
Wait: TypeAlias = Callable[[float], object]


class RemoteVersions:
    """Adds versions to a catalog and withdraws them; its owner's lock is held."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        observe: Callable[[str, str], Observer],
    ) -> None:
        """Store the parts; `observe` makes the Observer of a name and a version."""
        self._settings = settings
        self._catalog = catalog
        self._observe = observe
        # By name and version: the runner, and the JSON values of the version.
        self._runners: dict[tuple[str, int], tuple[RemoteRunner, object]] = {}
        # The values of versions that this process could not serve.
        self._failed: dict[tuple[str, int], object] = {}
        # Set when a version has left the catalog, or was replaced.
        self.has_withdrawn = False

    def __contains__(self, version: tuple[str, int]) -> bool:
        """Return whether any model process serves a version."""
        return version in self._runners

    def serve(
        self, channel: Channel, name: str, number: int, values: Mapping[str, Any]
    ) -> None:
        """Start to send a version's jobs to a model process."""
        runner, known_values = self._runners.get((name, number), (None, None))
        runner = runner or RemoteRunner(name, number)
        runner.add(channel)
        if values in (known_values, self._failed.get((name, number))):
            return
        # A new version, or one that this process has replaced under its number.
        observer = self._observe(name, str(number))
        try:
            served = catalog_json.version_from_json(
                name, number, values, self._settings, runner, observer
            )
        except ModelLoadError as error:
            self._failed[name, number] = values
            if (name, number) in self._runners:
                # It is served no more: the same values are new if they come again.
                self._runners[name, number] = runner, None
            self._catalog.mark_failed(name, number, str(error))
            _log.error("model %s %s is not served: %s", name, number, error)
            return
        with suppress(Stopping):
            replaced = self._catalog.add(served)
            if replaced is not None and replaced.served is not None:
                self.has_withdrawn = True
            self._runners[name, number] = runner, values
            self._failed.pop((name, number), None)

    def leave(
        self, channel: Channel, name: str, serving: Sequence[int] = ()
    ) -> list[Wait]:
        """Send a model process jobs of the `serving` versions of a model only.

        Return the waits for the end of requests that use the other versions. A request
        that holds the last lease may still send its job to the model process.
        """
        waits: list[Wait] = []
        for model, number in [*self._failed]:
            if model == name and number not in serving:
                del self._failed[model, number]
        for (model, number), (runner, _) in list(self._runners.items()):
            if model != name or number in serving:
                continue
            if runner.channels() == {channel}:
                withdrawn = self._catalog.withdraw(name, number)
                self.has_withdrawn = True
                waits.append(partial(self._let_go, withdrawn))
                del self._runners[name, number]
            else:
                runner.leave(channel)
            waits.append(partial(runner.remove, channel))
        return waits

    def _let_go(self, withdrawn: Version, timeout_s: float) -> None:
        """Wait for the end of requests that use a version, whose entry may stay."""
        self._catalog.wait_until_unused(withdrawn, timeout_s)
        withdrawn.served = None


def wait_for_all(waits: Iterable[Wait], timeout_s: float) -> None:
    """Wait for one after the other, within one time limit."""
    give_up_at = time.monotonic() + timeout_s
    for wait in waits:
        wait(max(give_up_at - time.monotonic(), 0))
