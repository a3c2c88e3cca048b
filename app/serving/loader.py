"""Finds models in their folder, opens and warms them, and closes them at the end.

Loading runs in a thread of its own, so that a worker's heartbeat goes on and
readiness can be asked meanwhile. A model that can't be loaded is noted, and the
others go on.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from app.engines import open_engine
from app.engines.base import Engine
from app.errors import ModelLoadError, OutOfDeviceMemory, SettingsError
from app.serving.batcher import Batcher, Runner, Unbatched
from app.serving.catalog import Catalog, ServedModel
from app.serving.execution import Observer
from app.serving.release import release_for
from app.settings import Settings

_log = logging.getLogger(__name__)


def newest_versions(model_dir: Path) -> dict[str, Path | None]:
    """Model name -> folder of its highest version, None where it has none."""
    return {
        folder.name: max(
            (version for version in folder.iterdir() if _is_version(version)),
            key=lambda version: int(version.name),
            default=None,
        )
        for folder in sorted(model_dir.iterdir())
        if folder.is_dir() and not folder.name.startswith((".", "_", "lost+found"))
    }


def _is_version(folder: Path) -> bool:
    name = folder.name
    return folder.is_dir() and name.isascii() and name.isdigit()


class Loader:
    """Brings the models of one folder into a catalog, and takes them down again."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        observe: Callable[[str, str], Observer],
        open_engine: Callable[[Path, Settings], Engine] = open_engine,
    ) -> None:
        """Store the parts; `observe` gives a name and version their Observer."""
        self._settings = settings
        self._catalog = catalog
        self._observe = observe
        self._open_engine = open_engine
        self._lock = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._load, name="loader", daemon=True)

    def start(self) -> None:
        """Begin to load in the background, once."""
        if self._thread.ident:
            return
        for name in newest_versions(self._settings.model_dir):
            self._catalog.expect(name)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until each model is ready or has failed; False: time ran out."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self, timeout_s: float) -> None:
        """Close all models within one shared time limit; may be called twice.

        Raises nothing; a model that is still loading is not waited for.
        """
        give_up_at = time.monotonic() + timeout_s
        with self._lock:
            self._stopping = True
        for model in self._catalog.models():
            try:
                model.runner.close(max(give_up_at - time.monotonic(), 0))
            except Exception:  # an engine may raise anything
                _log.exception("model %s did not close in order", model.name)

    def _load(self) -> None:
        for name, folder in newest_versions(self._settings.model_dir).items():
            if self._stopping:
                return
            try:
                if folder is None:
                    raise ModelLoadError("has no version folder, such as 1")
                self._load_version(name, folder)
            except (ModelLoadError, SettingsError) as error:
                _log.error("model %s is not served: %s", name, error)
                self._catalog.fail(name, str(error))
            except BaseException as error:  # a model may raise anything
                _log.exception("model %s is not served", name)
                self._catalog.fail(name, f"failed to load ({type(error).__name__})")

    def _load_version(self, name: str, folder: Path) -> None:
        settings = self._settings.for_model(folder.parent)
        _log.info("loading model %s version %s", name, folder.name)
        began_at = time.monotonic()
        engine = self._open_engine(folder, settings)
        try:
            warm_up(engine, settings.max_batch_size)
        except BaseException:
            engine.close()
            raise
        observer = self._observe(name, folder.name)
        runner = _runner(engine, settings, observer)
        model = ServedModel(name, folder.name, engine.signature, runner, observer)
        with self._lock:
            if self._stopping:
                engine.close()
                return
            runner.start()
            self._catalog.add(model)
        took_s = time.monotonic() - began_at
        _log.info("model %s version %s is ready (%.1f s)", name, folder.name, took_s)


def warm_up(engine: Engine, max_batch_size: int) -> None:
    """Run the smallest and the largest batch, so that no client pays for a first.

    Raises:
        ModelLoadError: the model fails on rows of zeros.
    """
    for rows in sorted({1, max_batch_size}):
        batch = {spec.name: spec.blank(rows) for spec in engine.signature.inputs}
        try:
            engine.run(batch)
        except OutOfDeviceMemory as error:
            if rows == 1:
                raise ModelLoadError(f"not even one row fits: {error}") from error
            _log.warning("max_batch_size is too high: %s", error)
        except Exception as error:
            raise ModelLoadError(
                f"fails on a batch of {rows} rows of zeros ({type(error).__name__})"
            ) from error


def _runner(engine: Engine, settings: Settings, observer: Observer) -> Runner:
    max_rows = settings.max_batch_size * settings.max_enqueued_batches
    if not settings.batching:
        return Unbatched(engine, max_rows, observer)
    return Batcher(
        engine,
        release_for(settings),
        settings.max_batch_size,
        settings.max_enqueued_batches,
        observer,
    )
