"""A web worker's Loader: keeps a replica of the catalogs of the model processes."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from app import memory
from app.batching.interfaces import Observer
from app.errors import ModelProcessGone, SettingsError, Stopping
from app.repository.catalog import Catalog
from app.repository.routing import Rollout, Routes
from app.repository.served import State
from app.repository.single_model import scanner
from app.settings import Settings
from app.settings.model_config import CaptureConfig
from app.shared_model import error_json
from app.shared_model.channel import DIED, Channel
from app.shared_model.remote_versions import RemoteVersions, Wait, wait_for_all

_log = logging.getLogger(__name__)
# Seconds until the next try, if a model process does not listen.
_RECONNECT_S = 0.1
# Seconds until the next try, if an update of it could not be applied.
_RETRY_S = 5.0


class RemoteLoader:
    """Has the interface of Loader, and has model processes load and unload."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        observe: Callable[[str, str], Observer],
        paths: Sequence[str],
    ) -> None:
        """Store the parts; `paths` are the sockets of the model processes."""
        self._settings = settings
        self._catalog = catalog
        self._paths = paths
        self._drain_s = settings.request_timeout_ms / 1000
        self._versions = RemoteVersions(settings, catalog, observe)
        # The last update of each connected model process, by channel.
        self._updates: dict[Channel, Mapping[str, Any]] = {}
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
        self._call_all({"traffic": [name, dict(weights)]}, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Wait for jobs under way for at most so long, and fail the rest."""
        give_up_at = time.monotonic() + timeout_s
        self._stopping = True
        for served in self._catalog.close():
            served.runner.close(max(give_up_at - time.monotonic(), 0))
        for channel in list(self._updates):
            channel.close(Stopping("the server is stopping"))

    def _call_all(self, meta: dict[str, Any], timeout_s: float) -> None:
        channels = list(self._updates)
        if not channels:
            raise ModelProcessGone(DIED)
        meta = {**meta, "timeout_s": timeout_s}
        for channel in channels:
            reply = channel.call_and_wait(meta, 2 * timeout_s)
            if "error" in reply.meta:
                raise error_json.from_json(reply.meta)

    def _is_settled(self) -> bool:
        return len(self._updates) == len(self._paths) and all(
            model["settled"] or model["unloaded"]
            for models in self._updates.values()
            for model in models.values()
        )

    def _follow(self, path: str) -> None:
        while not self._stopping:
            try:
                with suppress(OSError):
                    self._apply_all(Channel.connect(path))
                time.sleep(_RECONNECT_S)
            except Exception:  # must not end the thread
                _log.exception("an update of the model process can't be applied")
                time.sleep(_RETRY_S)

    def _apply_all(self, channel: Channel) -> None:
        """Apply the updates of a model process until it ends."""
        channel.start()
        was_settled = False
        try:
            for update in channel.updates():
                self._catalog.set_folder_problem(update["folder_problem"])
                has_withdrawn = self._apply(channel, update["models"])
                if has_withdrawn and self._settings.user_code:
                    # A module and its functions are reference cycles.
                    memory.collect()
                if not was_settled and self.wait(0):
                    was_settled = True
                    _log.info("the models of the model process are known")
                channel.send({"acknowledge": update["revision"]})
        finally:
            channel.close(ModelProcessGone(DIED))
            self._drop(channel)

    def _apply(self, channel: Channel, models: Mapping[str, Any]) -> bool:
        """Apply an update, and wait until no request uses what it has removed.

        Return whether a version has left the catalog, or was replaced.
        """
        waits: list[Wait] = []
        with self._changed:
            if self._stopping:
                return False
            self._updates[channel] = models
            self._catalog.keep_default(models)
            for name, model in models.items():
                waits += self._apply_model(channel, name, model)
            for name in set(self._catalog.names()) - set(models):
                waits += self._versions.leave(channel, name)
                if not any(name in update for update in self._updates.values()):
                    self._catalog.remove(name)
            has_withdrawn = self._versions.has_withdrawn
            self._versions.has_withdrawn = False
            self._changed.notify_all()
        # Without the lock: updates of other model processes must not wait.
        wait_for_all(waits, self._drain_s)
        return has_withdrawn

    def _apply_model(
        self, channel: Channel, name: str, model: Mapping[str, Any]
    ) -> list[Wait]:
        catalog = self._catalog
        if model["unloaded"]:
            catalog.mark_unloaded(name)
        else:
            catalog.announce(name)
        capture = model["capture"] and CaptureConfig(**model["capture"])
        catalog.route(name, Routes(model["labels"], model["traffic"]), capture)
        catalog.set_rollout(name, model["rollout"] and Rollout(*model["rollout"]))
        serving = []
        for text, version in model["versions"].items():
            number = int(text)
            if version["state"] == State.AVAILABLE:
                self._versions.serve(channel, name, number, version["served"])
                serving.append(number)
        waits = self._versions.leave(channel, name, serving)
        for text, version in model["versions"].items():
            self._show_state(name, int(text), version)
        self._forget_unknown(name)
        catalog.set_problem(name, model["problem"])
        if model["settled"]:
            catalog.mark_settled(name)
        return waits

    def _show_state(self, name: str, number: int, version: Mapping[str, Any]) -> None:
        """Show the state of a version, unless another model process serves it."""
        if (name, number) in self._versions:
            return
        if version["state"] == State.END:
            self._catalog.mark_failed(name, number, version["error"])
        elif version["state"] == State.LOADING:
            self._catalog.mark_loading(name, number)

    def _forget_unknown(self, name: str) -> None:
        """Forget versions that no model process knows any more."""
        known: set[str] = set()
        for models in self._updates.values():
            known.update(models[name]["versions"] if name in models else ())
        for status in self._catalog.status(name):
            if str(status.version) not in known:
                self._catalog.remove(name, status.version)

    def _drop(self, channel: Channel) -> None:
        """Remove a dead model process, whose channel has failed all calls."""
        with self._changed:
            self._updates.pop(channel, None)
            for name in self._catalog.names():
                wait_for_all(self._versions.leave(channel, name), 0)
                self._forget_unknown(name)
                if not self._updates:
                    self._catalog.remove(name)
                    self._catalog.announce(name)
        if not self._stopping:
            _log.error("%s", DIED)
