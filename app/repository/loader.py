"""The loader: keeps the catalog equal to the model folder.

One thread scans the folder again and again. It loads and warms up a new version, swaps
it for the old one, and closes the old one after its last request. Loads take minutes,
so they run in a thread, while the worker sends heartbeats and answers readiness probes.
"""

import logging
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from app import run_dir
from app.engines.layout import Layout
from app.errors import Late, ModelFailed, NotReady, Stopping
from app.repository.catalog import Catalog
from app.repository.reconciler import Reconciler
from app.repository.single_model import scanner
from app.repository.traffic import SplitScan
from app.run_dir.notes import Notes
from app.run_dir.traffic_splits import TrafficSplits
from app.settings import Settings

_log = logging.getLogger(__name__)
SCAN_EVERY_S = 1.0


class Loader:
    """Loads the models of one folder into a catalog, and unloads them."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        reconciler: Reconciler,
        unloaded: Notes,
        scan_every_s: float | None = SCAN_EVERY_S,
    ) -> None:
        """Store the parts; with `scan_every_s` None only `rescan` scans again.

        `unloaded` are the models that were unloaded on request, in any worker.
        """
        self._settings = settings
        self._catalog = catalog
        self._unloaded = unloaded
        splits = TrafficSplits(run_dir.path_of("traffic"))
        self._scan = SplitScan(scanner(settings), splits)
        self._scan_every_s = scan_every_s
        self._reconciler = reconciler
        self._stopping = False
        # The last logged error of the model folder as a whole.
        self._problem = ""
        # Numbers of scans; a scan is done when it has found no incomplete version.
        self._requested = self._begun = self._done = 0
        self._to_retry: set[str] = set()
        self._scanned = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)

    def start(self) -> None:
        """Start to load in the background; may be called twice."""
        if self._thread.ident:
            return
        names = self._scan()
        self._catalog.keep_default(names)
        for name in names:
            self._catalog.announce(name)
        self._requested = 1
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until each model is ready or has failed; False: timeout."""
        with self._scanned:
            return self._scanned.wait_for(lambda: self._done > 0, timeout_s)

    def rescan(self, timeout_s: float | None = None) -> bool:
        """Scan now, and wait for the loads that follow; False: timeout.

        Raises:
            Stopping: the loader is closed.
        """
        with self._scanned:
            self._requested += 1
            number = self._requested
            self._scanned.notify_all()
            self._scanned.wait_for(
                lambda: self._done >= number or self._stopping, timeout_s
            )
            if self._done < number and self._stopping:
                raise Stopping("the server is stopping")
            return self._done >= number

    def load(self, name: str, timeout_s: float | None = None) -> None:
        """Load a model that was unloaded, or retry one that has failed.

        Raises:
            UnknownModel: the model has no folder.
            Late: the load continues after the timeout.
            NotReady: another request has unloaded the model meanwhile, or the folder
                of models can't be read.
            ModelFailed: the model can't be loaded.
            Stopping: the loader is closed.
        """
        self._scan.find(name)
        self._unloaded.discard(name)
        with self._scanned:
            self._to_retry.add(name)
        if not self.rescan(timeout_s):
            raise Late(f"model {name!r} is still loading")
        reason = self._catalog.unavailable_reason(name)
        if reason and name in self._unloaded:
            raise NotReady(f"model {name!r} was unloaded again meanwhile")
        if reason:
            raise ModelFailed(f"failed to load {name!r}: {reason}")

    def unload(self, name: str, timeout_s: float | None = None) -> None:
        """Finish a model's jobs, and unload it until the next `load`.

        Raises:
            UnknownModel: the model has no folder.
            NotReady: the folder of models can't be read.
            Late: the unload continues after the timeout.
            Stopping: the loader is closed.
        """
        self._scan.find(name)
        self._unloaded.add(name)
        if not self.rescan(timeout_s):
            raise Late(f"model {name!r} is still unloading")

    def set_traffic(
        self, name: str, weights: Mapping[str, float], timeout_s: float | None = None
    ) -> None:
        """Split a model's traffic by label; without weights, as basket.toml says.

        Raises:
            BasketError: as SplitScan.set.
            Late: other loads delay the change.
            Stopping: the loader is closed.
        """
        self._scan.set(name, weights)
        if not self.rescan(timeout_s):
            raise Late(f"model {name!r}: its traffic moves after other loads")

    def close(self, timeout_s: float) -> None:
        """Close all models within one time limit; may be called twice.

        Raises nothing, and does not wait for a model that is loading.
        """
        give_up_at = time.monotonic() + timeout_s
        self._reconciler.close()
        with self._scanned:
            self._stopping = True
            self._scanned.notify_all()
        for model in self._catalog.close():
            model.close(max(give_up_at - time.monotonic(), 0))

    def _run(self) -> None:
        while not self._stopping:
            with self._scanned:
                requested, to_retry = self._requested, self._to_retry
                self._to_retry = set()
            for name in to_retry:
                self._reconciler.retry(name)
            is_complete = True
            try:
                is_complete = self._update()
            except Exception:  # must not end the thread
                _log.exception("the scan of the model folder failed")
                self._catalog.set_folder_problem(
                    "can't be scanned: the server's log has more"
                )
            with self._scanned:
                self._begun = requested
                if is_complete:
                    self._done = requested
                self._scanned.notify_all()
                self._scanned.wait_for(self._has_work, self._scan_every_s)

    def _has_work(self) -> bool:
        return self._stopping or self._requested > self._begun

    def _update(self) -> bool:
        """Scan the folder, and reconcile each model with it.

        Return False if a version is being written, and so not loaded yet.
        """
        try:
            folders = self._scan()
        except OSError as error:
            self._log_problem(f"{self._folder()} can't be read now: {error.strerror}")
            problem = Layout(self._settings).unreadable(error)
            for served in self._catalog.models():
                self._catalog.set_problem(served.name, problem)
            return True
        self._catalog.keep_default(folders)
        wanted = {name for name in folders if name not in self._unloaded}
        for name in wanted:
            self._catalog.announce(name)
        # Before the models are loaded, which can take minutes.
        problem = self._folder_problem(folders)
        self._catalog.set_folder_problem(problem)
        default = self._catalog.default_name()
        for name in sorted(folders, key=lambda name: (name != default, name)):
            if self._stopping:
                return True
            try:
                if name in wanted:
                    self._reconciler.update(folders[name])
                else:
                    self._catalog.mark_unloaded(name)
                    self._reconciler.remove(name)
            except Stopping:
                return True
            except Exception:  # must not end the thread
                _log.exception("model %s: its update failed", name)
        for name in set(self._catalog.names()) - set(folders):
            self._reconciler.remove(name)
            self._catalog.remove(name)
        named = f"{self._folder()}: {problem}" if problem else ""
        self._log_problem(named or self._default_problem(folders))
        is_complete = not any(folder.is_incomplete for folder in folders.values())
        if is_complete:
            self._catalog.note_ready(wanted)
        return is_complete

    def _folder_problem(self, names: Collection[str]) -> str:
        """Return what is wrong with the folder as a whole, or "" for nothing."""
        layout = Layout(self._settings)
        strays = [] if self._settings.model else list(layout.stray_files())
        if names:
            return "; ".join(strays)
        return "; ".join(["holds no model", *(strays or [layout.no_model()])])

    def _default_problem(self, names: Collection[str]) -> str:
        """Return why requests that name no model fail, or "" if they do not."""
        default = self._catalog.default_name()
        if default in (None, *names):
            return ""
        known = ", ".join(sorted(names))
        return (
            f"default model {default!r} is not in {self._folder()}; there are: {known}"
        )

    def _folder(self) -> Path:
        return self._settings.model or self._settings.model_dir

    def _log_problem(self, problem: str) -> None:
        """Log an error of the model folder, or "" for none, if it is a new one."""
        if problem and problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem
