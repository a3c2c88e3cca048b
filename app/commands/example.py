"""`models check` of a version with a service.py: its EXAMPLE."""

from collections.abc import Callable
from functools import partial

import click

from app.batching.execution import repeated
from app.batching.model_log import ModelLog
from app.commands.measurement import median_ms, time_batches
from app.engines.base import DEFAULT_SIGNATURE, Engine, Tensors
from app.engines.batch_sizes import batch_sizes
from app.engines.loading import as_load_error
from app.errors import ModelLoadError
from app.repository.loading.example import run_example
from app.settings import Settings
from app.settings.model_files import SERVICE_FILE
from app.user_code.user_code import UserCode, user_code_of

# Characters of the answer.
_SHOWN = 200


def check_example(engine: Engine, settings: Settings, log: ModelLog) -> bool:
    """Run EXAMPLE of service.py, if there is one, and time batches of its row.

    Return whether that is all: predict of service.py need not take random rows.

    Raises:
        ModelLoadError: EXAMPLE fails; or there is predict without EXAMPLE.
    """
    code = user_code_of(engine, settings, log)
    if code is None:
        return False
    has_predict = code.service.predict is not None
    if not code.service.has_example:
        if has_predict:
            raise ModelLoadError(
                f"{SERVICE_FILE} has predict, and no EXAMPLE = ... to run it on"
            )
        return False
    sizes = batch_sizes(settings.max_batch_size, settings.allowed_batch_sizes)
    # Compares the numbers of answers and of rows, too.
    run_example(engine, code, sizes)

    def answer() -> bytes:
        return code.body_of(engine.run(code.example_inputs()))

    # Code that has answered once need not do so again.
    fails = partial(as_load_error, "its EXAMPLE", code.service.described)
    with fails():
        duration_ms, shown = median_ms(answer), _shown(answer())
    click.echo(f"EXAMPLE: answered in {duration_ms:.2f} ms: {shown}")
    click.echo("  timing batches of its row ...")
    with fails():
        time_batches(engine, DEFAULT_SIGNATURE, example_rows(code), settings)
    return has_predict


def example_rows(code: UserCode) -> Callable[[int], Tensors]:
    """Return a function that makes so many rows, which all are EXAMPLE's."""
    row = code.example_inputs()
    return lambda rows: {name: repeated(array, rows) for name, array in row.items()}


def _shown(body: bytes) -> str:
    """Return the prediction of a response as JSON, cut off if it is long."""
    text = body.removeprefix(b'{"predictions":[').removesuffix(b"]}").decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
