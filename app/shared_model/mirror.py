"""A web worker's copy of what the model processes serve."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.batching.interfaces import Observer
from app.errors import ModelProcessGone, SettingsError, Stopping
from app.repository.catalog import Catalog
from app.repository.routing import Routes
from app.repository.scan import scan
from app.repository.served import State
from app.settings import Settings
from app.shared_model import failures
from app.shared_model.channel import GONE, Channel
from app.shared_model.remote_versions import RemoteVersions, Wait, wait_for_all

_log = logging.getLogger(__name__)
# Before the next try, where a model process can't be reached.
_RETRY_S = 0.1
# Before the next try, where what it says can't be taken in.
_RETRY_LATER_S = 5.0


class Mirror:
    """Stands where a Loader stands, and has model processes do what it does."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        observe: Callable[[str, str], Observer],
        paths: Sequence[str],
    ) -> None:
        """Store the parts; `paths` are where model processes listen."""
        self._settings = settings
        self._catalog = catalog
        self._paths = paths
        self._drain_s = settings.request_timeout_ms / 1000
        self._versions = RemoteVersions(settings, catalog, observe)
        # What each living model process says, by its channel.
        self._shown: dict[Channel, Mapping[str, Any]] = {}
        self._stopping = False
        self._changed = threading.Condition(threading.RLock())
        self._threads = [
            threading.Thread(
                target=self._follow, args=(path,), name="mirror", daemon=True
            )
            for path in paths
        ]

    def start(self) -> None:
        """Begin to follow the model processes, once.

        Raises:
            SettingsError: nobody has started any.
        """
        if not self._threads:
            raise SettingsError(
                "BASKET_MODEL_PROCESS=shared: only Gunicorn with Basket's "
                "gunicorn.conf.py starts a model process"
            )
        for name in scan(self._settings.model_dir, self._settings):
            self._catalog.expect(name)
        for thread in self._threads:
            if not thread.ident:
                thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until each model is ready or has failed; False: time ran out."""
        with self._changed:
            return self._changed.wait_for(self._is_settled, timeout_s)

    def load(self, name: str, timeout_s: float) -> None:
        """As a Loader's, in each model process.

        Raises:
            BasketError: what the Loader there raises.
        """
        self._ask_all({"load": name}, timeout_s)

    def unload(self, name: str, timeout_s: float) -> None:
        """As a Loader's, in each model process.

        Raises:
            BasketError: what the Loader there raises.
        """
        self._ask_all({"unload": name}, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Finish the jobs under way for so long, and fail the rest."""
        give_up_at = time.monotonic() + timeout_s
        self._stopping = True
        for served in self._catalog.close():
            served.runner.close(max(give_up_at - time.monotonic(), 0))
        for channel in list(self._shown):
            channel.close(Stopping("the server is stopping"))

    def _ask_all(self, what: dict[str, Any], timeout_s: float) -> None:
        channels = list(self._shown)
        if not channels:
            raise ModelProcessGone(GONE)
        asked = {**what, "timeout_s": timeout_s}
        for channel in channels:
            frame = channel.order(asked, 2 * timeout_s)
            if "error" in frame.meta:
                raise failures.rebuild(frame.meta)

    def _is_settled(self) -> bool:
        return len(self._shown) == len(self._paths) and all(
            model["settled"] or model["unloaded"]
            for models in self._shown.values()
            for model in models.values()
        )

    def _follow(self, path: str) -> None:
        while not self._stopping:
            try:
                with suppress(OSError):
                    self._watch(Channel.to(path))
                time.sleep(_RETRY_S)
            except Exception:  # must not end the thread
                _log.exception("what the model process says can't be taken in")
                time.sleep(_RETRY_LATER_S)

    def _watch(self, channel: Channel) -> None:
        """Take in what one life of a model process says, to its end."""
        channel.start()
        was_settled = False
        try:
            for said in channel.news():
                self._take_in(channel, said["models"])
                if not was_settled and self.wait(0):
                    was_settled = True
                    _log.info("the models of the model process are here")
                channel.tell({"seen": said["revision"]})
        finally:
            channel.close(ModelProcessGone(GONE))
            self._drop(channel)

    def _take_in(self, channel: Channel, models: Mapping[str, Any]) -> None:
        """Make it so, and wait until nothing needs what has gone."""
        waits: list[Wait] = []
        with self._changed:
            if self._stopping:
                return
            self._shown[channel] = models
            for name, model in models.items():
                waits += self._update(channel, name, model)
            for name in set(self._catalog.names()) - set(models):
                waits += self._versions.leave(channel, name)
                if not any(name in shown for shown in self._shown.values()):
                    self._catalog.forget(name)
            self._changed.notify_all()
        # Nobody else is kept waiting meanwhile.
        wait_for_all(waits, self._drain_s)

    def _update(
        self, channel: Channel, name: str, model: Mapping[str, Any]
    ) -> list[Wait]:
        """What one model needs to be waited for, once it is as it is there."""
        catalog = self._catalog
        if model["unloaded"]:
            catalog.mark_unloaded(name)
        else:
            catalog.expect(name)
        catalog.route(name, Routes(model["labels"], model["traffic"]))
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
        catalog.note(name, model["problem"])
        if model["settled"]:
            catalog.settle(name)
        return waits

    def _show_state(self, name: str, number: int, version: Mapping[str, Any]) -> None:
        """A version that no model process serves: why not."""
        if (name, number) in self._versions:
            return
        if version["state"] == State.END:
            self._catalog.fail(name, number, version["error"])
        elif version["state"] == State.LOADING:
            self._catalog.begin(name, number)

    def _forget_unknown(self, name: str) -> None:
        """Forget versions that no model process speaks of any more."""
        known: set[str] = set()
        for models in self._shown.values():
            known.update(models[name]["versions"] if name in models else ())
        for status in self._catalog.status(name):
            if str(status.version) not in known:
                self._catalog.forget(name, status.version)

    def _drop(self, channel: Channel) -> None:
        """The model process has ended, and the channel has told all who waited."""
        with self._changed:
            self._shown.pop(channel, None)
            for name in self._catalog.names():
                wait_for_all(self._versions.leave(channel, name), 0)
                self._forget_unknown(name)
                if not self._shown:
                    self._catalog.forget(name)
                    self._catalog.expect(name)
        if not self._stopping:
            _log.error("%s", GONE)
