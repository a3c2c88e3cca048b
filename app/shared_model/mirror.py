"""A web worker's copy of what the model processes serve."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.errors import ModelProcessGone, SettingsError, Stopping
from app.serving.catalog import Catalog
from app.serving.observer import Observer
from app.serving.repository import scan
from app.serving.routing import Routes
from app.serving.served import State
from app.settings import Settings
from app.shared_model import failures, snapshot
from app.shared_model.channel import GONE, Channel
from app.shared_model.remote_runner import RemoteRunner

_log = logging.getLogger(__name__)
# Before the next try, where a model process can't be reached.
_RETRY_S = 0.1


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
        self._observe = observe
        self._paths = paths
        self._drain_s = settings.request_timeout_ms / 1000
        # Each version's, and how the version was last described.
        self._runners: dict[tuple[str, int], tuple[RemoteRunner, object]] = {}
        # What each living model process says, by its channel.
        self._shown: dict[Channel, Mapping[str, Any]] = {}
        self._stopping = False
        self._changed = threading.Condition(threading.RLock())
        self._threads = [
            threading.Thread(target=self._follow, args=(path,), daemon=True)
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
            with suppress(OSError):
                self._watch(Channel.to(path))
            time.sleep(_RETRY_S)

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
            self._drop(channel)

    def _take_in(self, channel: Channel, models: Mapping[str, Any]) -> None:
        with self._changed:
            if self._stopping:
                return
            self._shown[channel] = models
            for name, model in models.items():
                self._update(channel, name, model)
            for name in set(self._catalog.names()) - set(models):
                self._leave(channel, name, (), self._drain_s)
                if not any(name in shown for shown in self._shown.values()):
                    self._catalog.forget(name)
            self._changed.notify_all()

    def _update(self, channel: Channel, name: str, model: Mapping[str, Any]) -> None:
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
                self._serve(channel, name, number, version["served"])
                serving.append(number)
        self._leave(channel, name, serving, self._drain_s)
        for text, version in model["versions"].items():
            self._show_state(name, int(text), version)
        for status in catalog.status(name):
            if not self._is_known(name, status.version):
                catalog.forget(name, status.version)
        self._catalog.note(name, model["problem"])
        if model["settled"]:
            self._catalog.settle(name)

    def _serve(
        self, channel: Channel, name: str, number: int, described: Mapping[str, Any]
    ) -> None:
        runner, known = self._runners.get((name, number), (None, None))
        runner = runner or RemoteRunner(name, number)
        runner.add(channel)
        if described == known:
            return
        # New, or replaced while another process kept it here.
        self._runners[name, number] = runner, described
        observer = self._observe(name, str(number))
        served = snapshot.to_served(
            name, number, described, self._settings, runner, observer
        )
        with suppress(Stopping):
            self._catalog.add(served)

    def _leave(
        self, channel: Channel, name: str, serving: Sequence[int], drain_s: float
    ) -> None:
        """Send no more jobs there for other versions than those, and wait for all."""
        for (model, number), (runner, _) in list(self._runners.items()):
            if model != name or number in serving:
                continue
            if runner.channels() == {channel}:
                self._catalog.retire(name, number, drain_s)
                self._catalog.forget(name, number)
                del self._runners[name, number]
            runner.remove(channel, drain_s)

    def _show_state(self, name: str, number: int, version: Mapping[str, Any]) -> None:
        """A version that no model process serves: why not."""
        if (name, number) in self._runners:
            return
        if version["state"] == State.END:
            self._catalog.fail(name, number, version["error"])
        elif version["state"] == State.LOADING:
            self._catalog.begin(name, number)

    def _is_known(self, name: str, number: int) -> bool:
        return (name, number) in self._runners or any(
            str(number) in models[name]["versions"]
            for models in self._shown.values()
            if name in models
        )

    def _drop(self, channel: Channel) -> None:
        """The model process has ended, and the channel has told all who waited."""
        with self._changed:
            self._shown.pop(channel, None)
            for name in self._catalog.names():
                self._leave(channel, name, (), 0)
                if not self._shown:
                    self._catalog.forget(name)
                    self._catalog.expect(name)
        if not self._stopping:
            _log.error("%s", GONE)
