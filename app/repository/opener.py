"""Load, warm-up and start of a version."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.batching.batcher import Batcher
from app.batching.execution import checked
from app.batching.executor import Executor
from app.batching.interfaces import Observer, Runner
from app.batching.model_log import ModelLog
from app.batching.release import release_for
from app.batching.unbatched import Unbatched
from app.engines import open_engine
from app.engines.base import Engine, Signature, Tensors
from app.errors import (
    Late,
    ModelLoadError,
    NotYetLoadable,
    OutOfDeviceMemory,
    Unavailable,
    WrongOutputs,
)
from app.repository.image_fit import check_image_fit
from app.repository.served import ServedModel
from app.settings import Settings
from app.settings.model_config import ModelConfig


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
        """
        settings, log = config.settings, ModelLog(name, version)
        engine = self.open_engine(folder, settings)
        try:
            if config.image is not None:
                check_image_fit(config.image, engine)
            sizes = settings.allowed_batch_sizes or sorted({1, settings.max_batch_size})
            known_good = warm_up(engine, sizes, log)
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
        )


def warm_up(engine: Engine, sizes: Sequence[int], log: ModelLog) -> dict[str, Tensors]:
    """Run batches of blank rows, in these increasing sizes, before any client does.

    Return the smallest batch of each signature that runs blank rows without an error.

    Raises:
        ModelLoadError: the model fails on rows of zeros, or its outputs are wrong.
        NotYetLoadable: the model's server does not answer.
    """
    known_good = {}
    for name, signature in engine.signatures.items():
        if signature.limit_reason:
            log.warning("signature %s: %s", name, signature.batching_note())
        smallest, *_ = own_sizes = signature.batch_sizes(sizes)
        try:
            for rows in own_sizes:
                _run_blank(engine, name, rows, is_smallest=rows == smallest, log=log)
        except ModelLoadError as error:
            if _has_fixed_numbers(signature):
                raise
            log.warning("warm-up of %s: %s; clients may do better", name, error)
        else:
            known_good[name] = _blank(signature, smallest)
    return known_good


def _run_blank(
    engine: Engine, name: str, rows: int, *, is_smallest: bool, log: ModelLog
) -> None:
    signature = engine.signatures[name]
    try:
        checked(engine.run(_blank(signature, rows), name), rows, signature)
    except OutOfDeviceMemory as error:
        if is_smallest:
            batch = "one row" if rows == 1 else f"a batch of {rows} rows"
            raise ModelLoadError(f"not even {batch} fits: {error}") from error
        log.warning("max_batch_size is too high: %s", error)
    except WrongOutputs as error:
        raise ModelLoadError(str(error)) from error
    except (Late, Unavailable) as error:
        raise NotYetLoadable(str(error)) from error
    except Exception as error:
        raise ModelLoadError(
            f"fails on a batch of {rows} rows of zeros ({type(error).__name__})"
        ) from error


def _blank(signature: Signature, rows: int) -> Tensors:
    return {spec.name: spec.blank(rows) for spec in signature.inputs}


def _has_fixed_numbers(signature: Signature) -> bool:
    """Return whether all inputs are numbers of fixed shapes.

    Other blank rows, such as empty strings or pictures of one pixel, may be invalid.
    """
    return all(
        spec.dtype.kind != "O" and None not in spec.shape and not spec.any_rank
        for spec in signature.inputs
    )


def _runner(
    engine: Engine,
    settings: Settings,
    observer: Observer,
    log: ModelLog,
    known_good: Mapping[str, Tensors],
) -> Runner:
    max_rows = settings.max_rows
    largest = settings.max_batch_size if settings.batching else max_rows
    sizes = settings.allowed_batch_sizes or range(1, largest + 1)
    # A circuit breaker is used by one thread only.
    known_good = known_good if settings.batching else {}
    executor = Executor(engine, observer, log, sizes, known_good)
    observer.batch_limited(executor.ceilings.lowest())
    if not settings.batching:
        return Unbatched(executor, max_rows)
    release = release_for(settings, executor.expected_s)
    return Batcher(executor, release, max_rows, observer)
