"""The versions in a web worker's catalog, whose jobs run in model processes."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from app.batching.interfaces import Observer
from app.errors import Stopping
from app.repository.catalog import Catalog
from app.settings import Settings
from app.shared_model import snapshot
from app.shared_model.channel import Channel
from app.shared_model.remote_runner import RemoteRunner

# Blocks for so many seconds, or until what it is about is over.
Wait: TypeAlias = Callable[[float], object]


class RemoteVersions:
    """Puts versions into a catalog and takes them out; used under its owner's lock."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        observe: Callable[[str, str], Observer],
    ) -> None:
        """Store the parts."""
        self._settings = settings
        self._catalog = catalog
        self._observe = observe
        # Each version's, and how the version was last described.
        self._runners: dict[tuple[str, int], tuple[RemoteRunner, object]] = {}

    def __contains__(self, version: tuple[str, int]) -> bool:
        """Say whether some model process serves it."""
        return version in self._runners

    def serve(
        self, channel: Channel, name: str, number: int, described: Mapping[str, Any]
    ) -> None:
        """Send a version's jobs to this model process too."""
        runner, known = self._runners.get((name, number), (None, None))
        runner = runner or RemoteRunner(name, number)
        runner.add(channel)
        if described == known:
            return
        # New, or replaced while another process kept it here.
        observer = self._observe(name, str(number))
        served = snapshot.to_served(
            name, number, described, self._settings, runner, observer
        )
        with suppress(Stopping):
            self._catalog.add(served)
            self._runners[name, number] = runner, described

    def leave(
        self, channel: Channel, name: str, serving: Sequence[int] = ()
    ) -> list[Wait]:
        """Send nothing there for other versions than those; what is to be waited for.

        Whoever has a lease on what nobody else serves may still send jobs there.
        """
        waits: list[Wait] = []
        for (model, number), (runner, _) in list(self._runners.items()):
            if model != name or number in serving:
                continue
            if runner.channels() == {channel}:
                withdrawn = self._catalog.withdraw(name, number)
                waits.append(partial(self._catalog.wait_until_unused, withdrawn))
                del self._runners[name, number]
            else:
                runner.leave(channel)
            waits.append(partial(runner.remove, channel))
        return waits


def wait_for_all(waits: Iterable[Wait], timeout_s: float) -> None:
    """Wait for one after the other, within one time limit."""
    give_up_at = time.monotonic() + timeout_s
    for wait in waits:
        wait(max(give_up_at - time.monotonic(), 0))
