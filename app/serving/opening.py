"""From a version's folder to a model that is warm and takes jobs."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.engines import open_engine
from app.engines.base import Engine, Signature
from app.errors import ModelLoadError, OutOfDeviceMemory
from app.model_config import ModelConfig
from app.serving.batcher import Batcher, Runner, Unbatched
from app.serving.execution import Observer
from app.serving.release import release_for
from app.serving.served import ServedModel
from app.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opener:
    """Opens versions; `observe` gives a name and a version their Observer."""

    observe: Callable[[str, str], Observer]
    open_engine: Callable[[Path, Settings], Engine] = open_engine

    def open(
        self, name: str, version: int, folder: Path, config: ModelConfig
    ) -> ServedModel:
        """Open, warm up, and start to take jobs.

        Raises:
            ModelLoadError: no engine can read the folder, or the model fails on rows
                of zeros.
        """
        settings = config.settings
        engine = self.open_engine(folder, settings)
        try:
            warm_up(engine, settings.max_batch_size)
        except BaseException:
            engine.close()
            raise
        observer = self.observe(name, str(version))
        runner = _runner(engine, settings, observer)
        runner.start()
        return ServedModel(
            name,
            version,
            engine.platform,
            engine.signatures,
            config,
            runner,
            observer,
        )


def warm_up(engine: Engine, max_batch_size: int) -> None:
    """Run the smallest and the largest batch, so that no client pays for a first.

    Raises:
        ModelLoadError: the model fails on rows of zeros.
    """
    for name, signature in engine.signatures.items():
        for rows in sorted({1, max_batch_size}):
            try:
                _run_blank(engine, name, signature, rows)
            except ModelLoadError as error:
                if _is_known(signature):
                    raise
                _log.warning("warm-up of %s: %s; clients may do better", name, error)


def _run_blank(engine: Engine, name: str, signature: Signature, rows: int) -> None:
    batch = {spec.name: spec.blank(rows) for spec in signature.inputs}
    try:
        engine.run(batch, name)
    except OutOfDeviceMemory as error:
        if rows == 1:
            raise ModelLoadError(f"not even one row fits: {error}") from error
        _log.warning("max_batch_size is too high: %s", error)
    except Exception as error:
        raise ModelLoadError(
            f"fails on a batch of {rows} rows of zeros ({type(error).__name__})"
        ) from error


def _is_known(signature: Signature) -> bool:
    """Whether blank rows are rows like any other: of numbers, and all sizes fixed.

    A model may well refuse an empty string or a picture of one pixel.
    """
    return all(
        spec.dtype.kind != "O" and None not in spec.shape for spec in signature.inputs
    )


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
