"""Load, warm-up and start of a version."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.batching.batcher import Batcher
from app.batching.execution import padded
from app.batching.executor import Executor
from app.batching.interfaces import Observer, Runner
from app.batching.model_log import ModelLog
from app.batching.release import release_for
from app.batching.unbatched import Unbatched
from app.engines import open_engine
from app.engines.base import Engine, Tensors
from app.repository.loading.example import run_example
from app.repository.loading.image_fit import check_image_fit
from app.repository.loading.warm_up import warm_up
from app.repository.served import ServedModel
from app.settings import Settings
from app.settings.model_config import ModelConfig
from app.user_code.user_code import UserCode, user_code_of

# Rows of the batches in which the warm-up compares rows whose sizes are free.
_SMALL_BATCH = 4


@dataclass(frozen=True)
class Opener:
    """Opens versions; `observe` makes the Observer of a name and a version."""

    observe: Callable[[str, str], Observer]
    open_engine: Callable[[Path, Settings], Engine] = open_engine

    def open(
        self, name: str, version: int, folder: Path, config: ModelConfig
    ) -> ServedModel:
        """Load a version, warm it up, and start its runner.

        Raises:
            ModelLoadError: no engine can read the folder, the model does not match
                [image], or the warm-up fails.
            NotYetLoadable: the model's server does not answer.
        """
        settings, log = config.settings, ModelLog(name, version)
        engine = self.open_engine(folder, settings)
        try:
            user_code, known_good = prepare(engine, config, log)
            observer = self.observe(name, str(version))
            runner = _runner(engine, settings, observer, log, known_good)
            runner.start()
        except BaseException:
            engine.close()
            raise
        return ServedModel(
            name,
            version,
            engine.platform,
            engine.signatures,
            config,
            runner,
            observer,
            user_code,
        )


def prepare(
    engine: Engine, config: ModelConfig, log: ModelLog
) -> tuple[UserCode | None, dict[str, Tensors]]:
    """Check and warm up a loaded engine, whose signatures may be unbatched afterwards.

    Return its service.py, and the smallest batch that each signature computes.

    Raises:
        ModelLoadError: the model does not match [image], or the warm-up fails.
        NotYetLoadable: the model's server does not answer.
    """
    settings = config.settings
    if config.image is not None:
        check_image_fit(config.image, engine)
    sizes = settings.allowed_batch_sizes or sorted({1, settings.max_batch_size})
    small = max(_SMALL_BATCH, sizes[0] + 1)
    small = padded(small, settings.allowed_batch_sizes)
    user_code = user_code_of(engine, settings, log)
    example: dict[str, Tensors] = {}
    if user_code is not None and user_code.service.has_example:
        example = run_example(engine, user_code, sizes)
    known_good: dict[str, Tensors] = {}
    if user_code is None or user_code.service.predict is None:
        known_good = warm_up(engine, sizes, small, log, has_known_good=bool(example))
        # Its rows are those of the signature as it is now.
        user_code = user_code_of(engine, settings, log)
    return user_code, known_good | example


def _runner(
    engine: Engine,
    settings: Settings,
    observer: Observer,
    log: ModelLog,
    known_good: Mapping[str, Tensors],
) -> Runner:
    max_rows = settings.max_rows
    # Rows that must not share a batch are no batch without batching, either.
    is_limited = settings.batching or settings.max_batch_size == 1
    largest = settings.max_batch_size if is_limited else max_rows
    sizes = settings.allowed_batch_sizes or range(1, largest + 1)
    # A circuit breaker is used by one thread only.
    known_good = known_good if settings.batching else {}
    executor = Executor(engine, observer, log, sizes, known_good)
    observer.batch_limited(executor.ceilings.lowest())
    if not settings.batching:
        return Unbatched(executor, max_rows)
    release = release_for(settings, executor.expected_s)
    return Batcher(executor, release, max_rows, observer)
