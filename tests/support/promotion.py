"""Versions to compare, of functions in the test's own process."""

import numpy as np

from app.batching.model_log import ModelLog
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.promotion.replay_rows import ReplayRows
from app.promotion.side import RowGroup, Side
from app.settings import Settings
from app.user_code.user_code import user_code_of

FLOAT32 = np.dtype(np.float32)


class Clock:
    """Seconds that only the compared versions move."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def signature(shape=(10,), outputs=(10,), dtype=np.float32):
    """Return a signature from x to scores."""
    return Signature(
        (TensorSpec("x", FLOAT32, shape),),
        (TensorSpec("scores", np.dtype(dtype), outputs),),
    )


def side(version, compute, clock=None, seconds=0.01, spec=None):
    """Return a version whose scores `compute` makes of x; a batch takes `seconds`."""
    clock = clock or Clock()

    def run(batch, name):
        clock.now += seconds
        return {"scores": compute(batch["x"])}

    signatures = {DEFAULT_SIGNATURE: spec or signature()}
    return Side(version, signatures, None, run, clock)


def of_engine(version, engine):
    """Return a version that an engine runs, with its service.py."""
    code = user_code_of(engine, Settings(), ModelLog("m", version))
    return Side(version, engine.signatures, code, engine.run)


def rows_of(x, largest=64):
    """Return rows (rows, *shape) to compare on."""
    group = RowGroup(DEFAULT_SIGNATURE, {"x": x})
    sizes = (1, 2, 4, 8, 16, 32, 64)
    described = f"{len(x)} captured rows"
    return ReplayRows([group], described, (), sizes, largest)


def random_scores(rows=200):
    """Return rows of ten scores, of which each class is the top one of some."""
    return np.random.default_rng(0).random((rows, 10), np.float32)
