"""The list of all models, in the order of the table."""

from testing.tried import (
    computes_nothing,
    files,
    images,
    keras2,
    not_batched,
    own_code,
    plain,
    runtimes,
    saved_models,
    sequences,
    texts,
)
from testing.tried.case import LISTED

_ORDER = (
    *(plain, sequences, texts, images, own_code, saved_models, not_batched),
    *(keras2, computes_nothing, runtimes, files),
)
TRIED = [
    model
    for module in _ORDER
    for model in LISTED
    if model.make.__module__ == module.__name__
]
