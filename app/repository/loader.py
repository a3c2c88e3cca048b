"""Keeps what is served equal to what stands in the folder of models.

One thread looks at the folder again and again. A new version is opened and warmed
beside the old one, takes its place at once, and the old one goes when its last
request is answered. Loading in a thread lets a worker's heartbeat go on, and
readiness be asked meanwhile.
"""

import logging
import threading
import time
from collections.abc import Collection
from pathlib import Path

from app.errors import Late, ModelFailed, NotReady, Stopping, UnknownModel
from app.repository.catalog import Catalog
from app.repository.opener import Opener
from app.repository.quarantine import Quarantine
from app.repository.reconciler import Reconciler, close
from app.repository.scan import scan
from app.run_dir.notes import Notes
from app.settings import Settings

_log = logging.getLogger(__name__)
SCAN_EVERY_S = 1.0


class Loader:
    """Brings the models of one folder into a catalog, and takes them down again."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        opener: Opener,
        unloaded: Notes,
        quarantine: Quarantine,
        scan_every_s: float | None = SCAN_EVERY_S,
    ) -> None:
        """Store the parts; with `scan_every_s` None only `rescan` looks again."""
        self._settings = settings
        self._catalog = catalog
        self._unloaded = unloaded
        self._scan_every_s = scan_every_s
        self._reconciler = Reconciler(
            catalog, opener, quarantine, drain_s=settings.request_timeout_ms / 1000
        )
        self._stopping = False
        # What is wrong with the folder of models as a whole.
        self._problem = ""
        # Passes over the folder: how many were asked for, and are done.
        self._asked = self._done = 0
        self._to_retry: set[str] = set()
        self._passes = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)

    def start(self) -> None:
        """Begin to load in the background, once."""
        if self._thread.ident:
            return
        for name in scan(self._settings.model_dir, self._settings):
            self._catalog.announce(name)
        self._asked = 1
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until each model is ready or has failed; False: time ran out."""
        with self._passes:
            return self._passes.wait_for(lambda: self._done > 0, timeout_s)

    def rescan(self, timeout_s: float | None = None) -> bool:
        """Look at the folder now, and wait for what follows; False: time ran out.

        Raises:
            Stopping: this is closed, and will not look again.
        """
        with self._passes:
            self._asked += 1
            mine = self._asked
            self._passes.notify_all()
            self._passes.wait_for(
                lambda: self._done >= mine or self._stopping, timeout_s
            )
            if self._done < mine and self._stopping:
                raise Stopping("the server is stopping")
            return self._done >= mine

    def load(self, name: str, timeout_s: float | None = None) -> None:
        """Serve a model that was unloaded, or try one again that failed.

        Raises:
            UnknownModel: no such folder.
            Late: it is still loading when the time is over, and goes on.
            NotReady: somebody has had it unloaded again meanwhile.
            ModelFailed: it can't be loaded; with the reason.
            Stopping: as `rescan`.
        """
        self._check_known(name)
        self._unloaded.discard(name)
        with self._passes:
            self._to_retry.add(name)
        if not self.rescan(timeout_s):
            raise Late(f"model {name!r} is still loading")
        reason = self._catalog.unavailable_reason(name)
        if reason and name in self._unloaded:
            raise NotReady(f"model {name!r} was unloaded again meanwhile")
        if reason:
            raise ModelFailed(f"failed to load {name!r}: {reason}")

    def unload(self, name: str, timeout_s: float | None = None) -> None:
        """Serve a model no more until it is loaded again; its jobs are finished.

        Raises:
            UnknownModel: no such folder.
            Late: it is still in use when the time is over, and goes later.
            Stopping: as `rescan`.
        """
        self._check_known(name)
        self._unloaded.add(name)
        if not self.rescan(timeout_s):
            raise Late(f"model {name!r} is still unloading")

    def close(self, timeout_s: float) -> None:
        """Close all models within one shared time limit; may be called twice.

        Raises nothing; a model that is still loading is not waited for.
        """
        give_up_at = time.monotonic() + timeout_s
        with self._passes:
            self._stopping = True
            self._passes.notify_all()
        for model in self._catalog.close():
            close(model, max(give_up_at - time.monotonic(), 0))

    def _check_known(self, name: str) -> None:
        if name not in scan(self._settings.model_dir, self._settings):
            raise UnknownModel(f"no model {name[:80]!r} in the repository")

    def _run(self) -> None:
        while not self._stopping:
            with self._passes:
                asked, to_retry = self._asked, self._to_retry
                self._to_retry = set()
            for name in to_retry:
                self._reconciler.retry(name)
            try:
                self._pass()
            except Exception:  # must not end the thread
                _log.exception("looking after the models failed")
            with self._passes:
                self._done = asked
                self._passes.notify_all()
                self._passes.wait_for(self._is_wanted, self._scan_every_s)

    def _is_wanted(self) -> bool:
        return self._stopping or self._asked > self._done

    def _pass(self) -> None:
        try:
            folders = scan(self._settings.model_dir, self._settings)
        except OSError as error:
            self._note(f"{self._folder()} can't be read now: {error.strerror}")
            for served in self._catalog.models():
                self._catalog.set_problem(served.name, self._problem)
            return
        default = self._catalog.default_name()
        for name in sorted(folders, key=lambda name: (name != default, name)):
            if self._stopping:
                return
            try:
                if name in self._unloaded:
                    self._catalog.mark_unloaded(name)
                    self._reconciler.remove(name)
                else:
                    self._catalog.announce(name)
                    self._reconciler.update(folders[name])
            except Stopping:
                return
            except Exception:  # must not end the thread
                _log.exception("model %s: looking after it failed", name)
        for name in set(self._catalog.names()) - set(folders):
            self._reconciler.remove(name)
            self._catalog.remove(name)
        self._note(self._lacks(folders))

    def _lacks(self, names: Collection[str]) -> str:
        """Why requests that name no model can have no answer; empty: they can."""
        if not names:
            return f"{self._folder()} holds no model"
        default = self._catalog.default_name()
        if default in (None, *names):
            return ""
        known = ", ".join(sorted(names))
        return (
            f"default model {default!r} is not in {self._folder()}; there are: {known}"
        )

    def _folder(self) -> Path:
        return self._settings.model_dir.absolute()

    def _note(self, problem: str) -> None:
        """Log what is wrong with the folder as a whole, once; empty: nothing."""
        if problem and problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem
