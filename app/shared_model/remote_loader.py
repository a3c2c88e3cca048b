"""A web worker's Loader: keeps a replica of the catalogs of the model processes."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from app import memory
from app.batching.interfaces import Observer
from app.batching.model_log import ModelLog
from app.engines.python.service import Service
from app.errors import ModelLoadError, ModelProcessGone, SettingsError, Stopping
from app.repository.catalog import Catalog
from app.repository.routing import Routes
from app.repository.served import ServedModel, State, Version
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


class _RemoteVersion:
    """A version that some model processes serve."""

    def __init__(self, name: str, number: int) -> None:
        self.runner = RemoteRunner(name, number)
        # The last one that this process began to serve, or could not serve.
        self.published: PublishedVersion | None = None


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
        # Whether an update has made a version leave the catalog.
        self._has_withdrawn = False
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
        self._call_all({"load": name}, timeout_s)

    def unload(self, name: str, timeout_s: float) -> None:
        """Unload a model in each model process.

        Raises:
            BasketError: as Loader.unload.
        """
        self._call_all({"unload": name}, timeout_s)

    def set_traffic(
        self, name: str, weights: Mapping[str, float], timeout_s: float
    ) -> None:
        """Split a model's traffic in each model process.

        Raises:
            BasketError: as Loader.set_traffic.
        """
        self._call_all({"traffic": (name, weights)}, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Wait for calls under way for at most so long, and fail the rest."""
        give_up_at = time.monotonic() + timeout_s
        self._stopping = True
        self._catalog.close()
        for channel in list(self._channels):
            channel.stop(max(give_up_at - time.monotonic(), 0))

    def _call_all(self, meta: dict[str, Any], timeout_s: float) -> None:
        channels = list(self._states)
        if not channels:
            raise ModelProcessGone(DIED)
        for channel in channels:
            channel.call_and_wait({**meta, "timeout_s": timeout_s}, 2 * timeout_s)

    def _is_settled(self) -> bool:
        return len(self._states) == len(self._paths) and all(
            model.settled or model.unloaded
            for state in self._states.values()
            for model in state.models.values()
        )

    def _follow(self, path: str) -> None:
        while not self._stopping:
            try:
                with suppress(OSError):
                    self._follow_channel(Channel.connect(path))
                time.sleep(min(_RECONNECT_S, self._retry_s))
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
            self._has_withdrawn = False
            leaving = self._replicate()
            has_withdrawn = self._has_withdrawn
            self._changed.notify_all()
        # Without the lock: updates of other model processes must not wait.
        drain_s = self._drain_s if state is not None else 0
        give_up_at = time.monotonic() + drain_s
        for version, runner in leaving:
            left_s = max(give_up_at - time.monotonic(), 0)
            self._catalog.wait_until_unused(version, left_s)
            # A request that held the last lease may have sent its job until now.
            runner.set_channels(frozenset())
            version.served = None
        if has_withdrawn and self._settings.user_code:
            # A module and its functions are reference cycles.
            memory.collect()

    def _replicate(self) -> list[tuple[Version, RemoteRunner]]:
        """Make the catalog that of all model processes; what differs is the latest's.

        Return the versions that are withdrawn.
        """
        catalog = self._catalog
        models: dict[str, PublishedModel] = {}
        for state in self._states.values():
            models.update(state.models)
            catalog.set_folder_problem(state.folder_problem)
        catalog.keep_default(models)
        leaving = []
        for name in {*catalog.names(), *models}:
            if name in models:
                self._announce(name, models[name])
            leaving += self._replicate_versions(name)
            if name in models:
                catalog.set_problem(name, models[name].problem)
                if models[name].settled:
                    catalog.mark_settled(name)
            else:
                catalog.remove(name)
                if not self._states:
                    catalog.announce(name)
        return leaving

    def _announce(self, name: str, model: PublishedModel) -> None:
        if model.unloaded:
            self._catalog.mark_unloaded(name)
        else:
            self._catalog.announce(name)
        self._catalog.route(name, Routes(model.labels, model.traffic), model.capture)
        self._catalog.set_rollout(name, model.rollout)

    def _replicate_versions(self, name: str) -> list[tuple[Version, RemoteRunner]]:
        states: dict[int, PublishedState] = {}
        serving: dict[int, set[Channel]] = {}
        for channel, catalog_state in self._states.items():
            model = catalog_state.models.get(name)
            for state in model.versions if model else ():
                if state.state is State.AVAILABLE:
                    serving.setdefault(state.number, set()).add(channel)
                elif state.number in serving:
                    continue
                states[state.number] = state
        for number, channels in serving.items():
            self._serve(name, states[number], frozenset(channels))
        leaving = [
            self._withdraw(*key)
            for key in list(self._versions)
            if key[0] == name and key[1] not in serving
        ]
        for number in states.keys() - serving:
            if states[number].state is State.END:
                self._catalog.mark_failed(name, number, states[number].error)
            elif states[number].state is State.LOADING:
                self._catalog.mark_loading(name, number)
        for status in self._catalog.status(name):
            if status.version not in states:
                self._catalog.remove(name, status.version)
        return leaving

    def _serve(
        self, name: str, state: PublishedState, channels: frozenset[Channel]
    ) -> None:
        """Send a version's jobs to these model processes."""
        number, published = state.number, state.served
        version = self._versions.get((name, number))
        if version is None:
            version = self._versions[name, number] = _RemoteVersion(name, number)
        version.runner.set_channels(channels)
        if published is None or published == version.published:
            return
        # A new version, or one that a process has replaced under its number.
        version.published = published
        try:
            served = self._opened(name, number, published, version.runner)
            replaced = self._catalog.add(served)
            self._has_withdrawn |= replaced is not None and replaced.served is not None
        except ModelLoadError as error:
            self._catalog.mark_failed(name, number, str(error))
            _log.error("model %s %s is not served: %s", name, number, error)
        except Stopping:
            del self._versions[name, number]

    def _opened(
        self, name: str, number: int, published: PublishedVersion, runner: RemoteRunner
    ) -> ServedModel:
        """Return a version to be served.

        Raises:
            ModelLoadError: its service.py can't be imported in this process.
        """
        own = {key: getattr(published.config.settings, key) for key in OWN_SETTINGS}
        settings = replace(self._settings, **own)
        code = None
        if published.service is not None:
            code = UserCode(
                Service(published.service),
                published.signatures,
                ModelLog(name, number),
                is_packed=True,
            )
        return ServedModel(
            name=name,
            version=number,
            platform=published.platform,
            signatures=published.signatures,
            config=replace(published.config, settings=settings),
            runner=runner,
            observer=self._observe(name, str(number)),
            user_code=code,
        )

    def _withdraw(self, name: str, number: int) -> tuple[Version, RemoteRunner]:
        self._has_withdrawn = True
        withdrawn = self._catalog.withdraw(name, number)
        return withdrawn, self._versions.pop((name, number)).runner
