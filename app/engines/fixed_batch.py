"""Finds models that compute one row only, whatever their signature says."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from app.engines.base import Engine, Signature, TensorSpec
from app.engines.loading import error_summary, signature_of_tensors
from app.engines.random_rows import accepted_random_rows
from app.errors import ModelLoadError, OutOfDeviceMemory

_log = logging.getLogger(__name__)
_ROWS = 2


def rows_to_try(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Signature:
    """Return the signature of whole tensors, as if no output were of one row only."""
    if any(spec.any_rank or spec.shape[:1] != (None,) for spec in inputs):
        return signature_of_tensors(inputs, outputs)
    freed = [
        replace(spec, shape=(None, *spec.shape[1:])) if spec.shape[:1] == (1,) else spec
        for spec in outputs
    ]
    return signature_of_tensors(inputs, freed)


def limit_batches(
    engine: Engine, declared: Mapping[str, Signature]
) -> Mapping[str, Signature]:
    """Return the signatures, with batches of one row where two rows do not run as one.

    Converters and tracers write the batch size of an example into a Reshape, and leave
    the first dimensions of inputs free. `engine` has the signatures of `rows_to_try`,
    and `declared` are those of the file.
    """
    return {name: _limited(engine, name, each) for name, each in declared.items()}


def _limited(engine: Engine, name: str, declared: Signature) -> Signature:
    tried = engine.signatures[name]
    if tried.limit_reason:
        return declared
    try:
        rows = accepted_random_rows(engine, name)
    except ModelLoadError:  # the warm-up has more to say about it
        return declared
    try:
        outputs = engine.run(rows.make(_ROWS, np.random.default_rng(0)), name)
    except OutOfDeviceMemory:
        return tried
    except Exception as error:  # a model may raise anything
        _log.info("signature %s, %d rows: %s", name, _ROWS, error_summary(error))
        reason = "it computes one row, and fails on two"
    else:
        wrong = (key for key, array in outputs.items() if array.shape[:1] != (_ROWS,))
        output = next(wrong, None)
        if output is None:
            return tried
        if declared.takes_whole_tensors:
            return declared
        reason = f"two rows give an output {output} of shape {outputs[output].shape}"
    return replace(tried, fixed_batch_size=1, limit_reason=reason)
