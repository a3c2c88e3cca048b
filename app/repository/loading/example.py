"""Warm-up of a version with the EXAMPLE of its service.py."""

from collections.abc import Sequence
from functools import partial

from app.batching.execution import checked, repeated
from app.engines.base import DEFAULT_SIGNATURE, Engine, Tensors
from app.engines.loading import as_load_error
from app.engines.python.bounded import bounded
from app.user_code.user_code import UserCode


def run_example(
    engine: Engine, user_code: UserCode, sizes: Sequence[int]
) -> dict[str, Tensors]:
    """Run EXAMPLE through service.py and the model, in batches of these sizes.

    Return the smallest batch by the signature's name.

    Raises:
        ModelLoadError: a part of it fails or does not return, or there is not one
            answer for each row.
    """
    return bounded(partial(_run, engine, user_code, sizes), "its EXAMPLE")


def _run(
    engine: Engine, user_code: UserCode, sizes: Sequence[int]
) -> dict[str, Tensors]:
    signature = engine.signatures[DEFAULT_SIGNATURE]
    sizes = signature.batch_sizes(sizes)
    with as_load_error("its EXAMPLE", user_code.service.described):
        row = user_code.example_inputs()
        for size in sizes:
            batch = {name: repeated(array, size) for name, array in row.items()}
            outputs = checked(engine.run(batch), size, signature)
            answer = {name: array[:1] for name, array in outputs.items()}
        user_code.body_of(answer)
    smallest = {name: repeated(array, sizes[0]) for name, array in row.items()}
    return {DEFAULT_SIGNATURE: smallest}
