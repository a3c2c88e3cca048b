"""From a version's folder to a model that is warm and takes jobs."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.engines import open_engine
from app.engines.base import Engine, Signature
from app.errors import ModelLoadError, OutOfDeviceMemory
from app.model_config import ModelConfig
from app.serving.batcher import Batcher, Runner, Unbatched
from app.serving.execution import Observer
from app.serving.image_fit import check_image_fit
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
            ModelLoadError: no engine can read the folder, the model does not take what
                [image] makes, or it fails on rows of zeros.
        """
        settings = config.settings
        engine = self.open_engine(folder, settings)
        try:
            if config.image is not None:
                check_image_fit(config.image, engine)
            warm_up(engine, settings.max_batch_size, settings.allowed_batch_sizes)
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


def warm_up(
    engine: Engine, max_batch_size: int, allowed_batch_sizes: Sequence[int] = ()
) -> None:
    """Run batches of blank rows, so that no client pays for a first.

    Each of the allowed sizes, or else one row and a full batch.

    Raises:
        ModelLoadError: the model fails on rows of zeros.
    """
    for name, signature in engine.signatures.items():
        sizes = allowed_batch_sizes or sorted({1, max_batch_size})
        for rows in sizes:
            try:
                _run_blank(engine, name, signature, rows, smallest=sizes[0])
            except ModelLoadError as error:
                if _is_known(signature):
                    raise
                _log.warning("warm-up of %s: %s; clients may do better", name, error)


def _run_blank(
    engine: Engine, name: str, signature: Signature, rows: int, smallest: int
) -> None:
    batch = {spec.name: spec.blank(rows) for spec in signature.inputs}
    try:
        engine.run(batch, name)
    except OutOfDeviceMemory as error:
        if rows == smallest:
            least = "one row" if rows == 1 else f"a batch of {rows} rows"
            raise ModelLoadError(f"not even {least} fits: {error}") from error
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
        return Unbatched(engine, max_rows, observer, settings.allowed_batch_sizes)
    return Batcher(
        engine,
        release_for(settings),
        settings.max_batch_size,
        settings.max_enqueued_batches,
        observer,
        settings.allowed_batch_sizes,
    )
