"""The list of all models, in the order of the table."""

from testing.tried import (
    files,
    images,
    keras2,
    not_batched,
    own_code,
    plain,
    saved_models,
    sequences,
)
from testing.tried.case import LISTED

_ORDER = (
    *(plain, sequences, images, own_code, saved_models, not_batched, keras2),
    files,
)
TRIED = [
    model
    for module in _ORDER
    for model in LISTED
    if model.make.__module__ == module.__name__
]
