"""Check of a model against the [image] table of its basket.toml."""

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Engine, TensorSpec
from app.errors import ModelLoadError
from app.settings.image_config import ImageConfig


def check_image_fit(config: ImageConfig, engine: Engine) -> None:
    """Check that a model accepts the rows of [image] and has its classes as output.

    Raises:
        ModelLoadError: they do not match; the text names both sides.
    """
    signature = engine.signatures.get(DEFAULT_SIGNATURE)
    if signature is None or len(signature.inputs) != 1:
        raise ModelLoadError("[image] is for a model with one input")
    if signature.takes_whole_tensors:
        raise ModelLoadError(
            f"[image] is for a model of rows: {signature.batching_note()}"
        )
    (spec,) = signature.inputs
    if not spec.accepts(config.shape()):
        raise ModelLoadError(
            f"[image] makes rows {config.shape()}, the model takes {spec.shape_text()}"
        )
    holds_pixels = spec.dtype.kind in "iu" and np.can_cast(np.uint8, spec.dtype)
    if spec.dtype.kind != "f" and not (config.scale == "none" and holds_pixels):
        raise ModelLoadError(
            f'[image] scale = "{config.scale}" does not make {spec.dtype}, which the '
            "model takes"
        )
    if config.classes:
        _check_classes(len(config.classes), signature.outputs)


def _check_classes(classes: int, outputs: tuple[TensorSpec, ...]) -> None:
    if [output.shape for output in outputs] != [(classes,)]:
        given = ", ".join(output.shape_text() for output in outputs)
        raise ModelLoadError(
            f"[image] has {classes} classes, the model's output is {given}"
        )
