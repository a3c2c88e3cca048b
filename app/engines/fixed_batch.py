"""Finds models that compute one row only, whatever their signature says."""

import logging
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from app.engines.base import Engine, Signature
from app.engines.loading import error_summary
from app.engines.random_rows import accepted_random_rows
from app.errors import ModelLoadError, OutOfDeviceMemory

_log = logging.getLogger(__name__)
_ROWS = 2


def limit_batches(engine: Engine) -> Mapping[str, Signature]:
    """Return the signatures, with batches of one row where two rows do not run as one.

    Converters and tracers write the batch size of an example into a Reshape, and leave
    the first dimensions of inputs and outputs free.
    """
    return {name: _limited(engine, name) for name in engine.signatures}


def _limited(engine: Engine, name: str) -> Signature:
    signature = engine.signatures[name]
    if signature.limit_reason:
        return signature
    try:
        rows = accepted_random_rows(engine, name)
    except ModelLoadError:  # the warm-up has more to say about it
        return signature
    try:
        outputs = engine.run(rows.make(_ROWS, np.random.default_rng(0)), name)
    except OutOfDeviceMemory:
        return signature
    except Exception as error:  # a model may raise anything
        _log.info("signature %s, %d rows: %s", name, _ROWS, error_summary(error))
        reason = "it computes one row, and fails on two"
    else:
        wrong = (key for key, array in outputs.items() if len(array) != _ROWS)
        output = next(wrong, None)
        if output is None:
            return signature
        reason = f"its output {output} has {len(outputs[output])} rows for two"
    return replace(signature, fixed_batch_size=1, limit_reason=reason)
