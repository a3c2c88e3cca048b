"""A web worker's Loader: keeps a replica of the catalogs of the model processes."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from app import memory
from app.batching.interfaces import Observer, Runner
from app.batching.model_log import ModelLog
from app.engines.python.service import Service
from app.errors import ModelLoadError, ModelProcessGone, SettingsError
from app.repository.catalog import Catalog
from app.repository.served import Model, ServedModel, State, Version
from app.repository.single_model import scanner
from app.settings import Settings
from app.settings.model_config import OWN_SETTINGS
from app.shared_model.channel import DIED, Channel
from app.shared_model.json_values import from_json
from app.shared_model.published_catalog import (
    CatalogState,
    PublishedModel,
    PublishedState,
    PublishedVersion,
)
from app.shared_model.remote_runner import RemoteRunner
from app.user_code.user_code import UserCode

_log = logging.getLogger(__name__)
# Seconds until the next try, if a model process does not listen.
_RECONNECT_S = 0.1
# The same, if an update of it could not be applied.
_RETRY_S = 5.0


class _RemoteVersion(NamedTuple):
    """A version that model processes serve, unless it could not be opened here."""

    runner: RemoteRunner
    published: PublishedVersion | None
    version: Version


class RemoteLoader:
    """Has the interface of Loader, and has model processes load and unload."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        observe: Callable[[str, str], Observer],
        paths: Sequence[str],
        retry_s: float = _RETRY_S,
    ) -> None:
        """Store the parts; `paths` are the sockets of the model processes.

        `observe` makes the Observer of a name and a version.
        """
        self._settings = settings
        self._catalog = catalog
        self._observe = observe
        self._paths = paths
        self._retry_s = retry_s
        self._drain_s = settings.request_timeout_ms / 1000
        # The catalog of each connected model process, the latest one last.
        self._states: dict[Channel, CatalogState] = {}
        self._channels: set[Channel] = set()
        self._versions: dict[tuple[str, int], _RemoteVersion] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._changed = threading.Condition(threading.RLock())
        self._threads = [
            threading.Thread(
                target=self._follow, args=(path,), name="remote loader", daemon=True
            )
            for path in paths
        ]

    def start(self) -> None:
        """Start to follow the model processes; may be called twice.

        Raises:
            SettingsError: there are no model processes.
        """
        if not self._threads:
            raise SettingsError(
                "BASKET_MODEL_PROCESS=shared: only Gunicorn with Basket's "
                "gunicorn.conf.py starts a model process"
            )
        for name in scanner(self._settings)():
            self._catalog.announce(name)
        for thread in self._threads:
            if not thread.ident:
                thread.start()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read replies on the event loop that runs in this thread from now on.

        It calls `Job.wake`. Until then, and without it, threads read.
        """
        with self._changed:
            self._loop = loop
            for channel in self._channels:
                channel.connection.attach(loop)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until each model is ready or has failed; False: timeout."""
        with self._changed:
            return self._changed.wait_for(self._is_settled, timeout_s)

    def load(self, name: str, timeout_s: float) -> None:
        """Load a model in each model process.

        Raises:
            BasketError: as Loader.load.
        """
        self._call_all("load", name, timeout_s=timeout_s)

    def unload(self, name: str, timeout_s: float) -> None:
        """Unload a model in each model process.

        Raises:
            BasketError: as Loader.unload.
        """
        self._call_all("unload", name, timeout_s=timeout_s)

    def set_traffic(
        self, name: str, weights: Mapping[str, float], timeout_s: float
    ) -> None:
        """Split a model's traffic in each model process.

        Raises:
            BasketError: as Loader.set_traffic.
        """
        self._call_all("set_traffic", name, weights, timeout_s=timeout_s)

    def close(self, timeout_s: float) -> None:
        """Wait for calls under way for at most so long, and fail the rest."""
        give_up_at = time.monotonic() + timeout_s
        self._stopping = True
        self._catalog.close()
        for channel in list(self._channels):
            channel.stop(max(give_up_at - time.monotonic(), 0))

    def _call_all(self, operation: str, *arguments: object, timeout_s: float) -> None:
        channels = list(self._states)
        if not channels:
            raise ModelProcessGone(DIED)
        meta = {
            "operation": operation,
            "arguments": arguments,
            "timeout_s": timeout_s,
        }
        for channel in channels:
            channel.call_and_wait(meta, 2 * timeout_s)

    def _is_settled(self) -> bool:
        return len(self._states) == len(self._paths) and all(
            each.model.settled or each.model.unloaded
            for state in self._states.values()
            for each in state.models.values()
        )

    def _follow(self, path: str) -> None:
        while not self._stopping:
            try:
                with suppress(OSError):
                    self._follow_channel(Channel.connect(path))
                time.sleep(_RECONNECT_S)
            except Exception:  # must not end the thread
                _log.exception("an update of the model process can't be applied")
                time.sleep(self._retry_s)

    def _follow_channel(self, channel: Channel) -> None:
        """Apply the updates of a model process until it ends."""
        with self._changed:
            channel.connection.start(self._loop)
            self._channels.add(channel)
        was_settled = False
        try:
            for update in channel.updates():
                self._apply(channel, from_json(CatalogState, update["catalog"]))
                if not was_settled and self.wait(0):
                    was_settled = True
                    _log.info("the models of the model process are known")
                channel.send({"acknowledge": update["revision"]})
        finally:
            channel.close(ModelProcessGone(DIED))
            self._channels.discard(channel)
            self._apply(channel, None)
            if not self._stopping:
                _log.error("%s", DIED)

    def _apply(self, channel: Channel, state: CatalogState | None) -> None:
        """Apply an update, None: the model process has died.

        Wait until no request uses what it has removed.
        """
        with self._changed:
            if self._stopping:
                return
            self._states.pop(channel, None)
            if state is not None:
                self._states[channel] = state
            withdrawn = self._replicate()
            runners = [each.runner for each in self._versions.values()]
            self._changed.notify_all()
        has_withdrawn = bool(withdrawn)
        # Without the lock: updates of other model processes must not wait.
        self._let_go(withdrawn, runners, self._drain_s if state is not None else 0)
        if has_withdrawn and self._settings.user_code:
            # A module and its functions are reference cycles.
            memory.collect()

    def _let_go(
        self, versions: list[Version], runners: Collection[Runner], timeout_s: float
    ) -> None:
        """Empty a list of versions that get no new request, once they are unused.

        One that was replaced under its number is not waited for: its runner goes on,
        and is among `runners`.
        """
        give_up_at = time.monotonic() + timeout_s
        while versions:
            version = versions.pop()
            assert version.served is not None  # it was available
            runner = version.served.runner
            if isinstance(runner, RemoteRunner) and runner not in runners:
                left_s = max(give_up_at - time.monotonic(), 0)
                if self._catalog.wait_until_unused(version, left_s):
                    version.served = None
                # A request that held the last lease may have sent its job until now.
                runner.set_channels(frozenset())

    def _replicate(self) -> list[Version]:
        """Make the catalog that of all model processes; what differs is the latest's.

        Return the versions that are withdrawn.
        """
        published: dict[str, PublishedModel] = {}
        problem = ""
        for state in self._states.values():
            published.update(state.models)
            problem = state.folder_problem
        before, self._versions = self._versions, {}
        models = {
            name: replace(each.model, versions=self._versions_of(name, before))
            for name, each in published.items()
        }
        if not self._states:
            models = {name: Model() for name in self._catalog.names()}
        self._catalog.keep_default(published)
        return self._catalog.replicate(models, problem)

    def _versions_of(
        self, name: str, before: Mapping[tuple[str, int], _RemoteVersion]
    ) -> dict[int, Version]:
        latest: dict[int, PublishedState] = {}
        serving: dict[int, set[Channel]] = {}
        for channel, state in self._states.items():
            model = state.models.get(name)
            for version in model.versions if model else ():
                if version.state is State.AVAILABLE:
                    serving.setdefault(version.number, set()).add(channel)
                elif version.number in serving:
                    continue
                latest[version.number] = version
        versions = {}
        for number, version in latest.items():
            versions[number] = Version(version.state, version.error)
            if number in serving:
                known = before.get((name, number)) or _RemoteVersion(
                    RemoteRunner(name, number), None, versions[number]
                )
                known.runner.set_channels(frozenset(serving[number]))
                if version.served and version.served != known.published:
                    # New, or replaced under its number.
                    opened = self._opened(name, number, version.served, known.runner)
                    known = _RemoteVersion(known.runner, version.served, opened)
                self._versions[name, number] = known
                versions[number] = known.version
        return versions

    def _opened(
        self, name: str, number: int, published: PublishedVersion, runner: RemoteRunner
    ) -> Version:
        """Return a version that is served here, or says why it can't be."""
        own = {key: getattr(published.config.settings, key) for key in OWN_SETTINGS}
        code = None
        try:
            if published.service is not None:
                code = UserCode(
                    Service(published.service),
                    published.signatures,
                    ModelLog(name, number),
                    is_packed=True,
                )
        except ModelLoadError as error:
            _log.error("model %s %s is not served: %s", name, number, error)
            return Version(State.END, str(error))
        served = ServedModel(
            name=name,
            version=number,
            platform=published.platform,
            signatures=published.signatures,
            config=replace(published.config, settings=replace(self._settings, **own)),
            runner=runner,
            observer=self._observe(name, str(number)),
            user_code=code,
        )
        return Version(State.AVAILABLE, served=served)
