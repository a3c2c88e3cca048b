"""SavedModels whose rows can't share a batch."""

from typing import Any

import numpy as np

from testing.tried.case import SAVED_MODEL, tried
from testing.tried.saving import Known, Saving, numbers


def detector(saving: Saving) -> Any:
    """Return a function and the spec of its input: one picture, as TF Hub's have it."""
    tf = saving.tf

    def detect(image: Any) -> dict[str, Any]:
        pixels = tf.cast(image, tf.float32)
        means = tf.reduce_mean(pixels, axis=[1, 2])
        scores = tf.nn.softmax(tf.concat([means / 64, means / 32], axis=1))
        return {
            "detection_scores": tf.sort(scores, direction="DESCENDING"),
            "detection_classes": tf.argsort(scores, direction="DESCENDING"),
            "detection_boxes": tf.reshape(
                tf.concat([means, means, means, means], axis=1) / 255, [1, 3, 4]
            ),
            "num_detections": tf.ones([1]) * 6,
        }

    return detect, tf.TensorSpec([1, None, None, 3], tf.uint8, "image")


def images(rows: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return images of random colors (rows, height, width, 3)."""
    colors = numbers(rows, 1, 1, 3, seed=seed)
    noise = numbers(rows, height, width, 3, seed=seed)
    return ((colors + noise) * 127).astype(np.uint8)


@tried("Detector as on TF Hub: (1, None, None, 3) uint8, several outputs", SAVED_MODEL)
def fixed_first_dimension(saving: Saving) -> Known:
    saving.functions(serving_default=detector(saving))
    known = Known((), ())
    for picture in (*images(2, 8, 12), *images(1, 16, 9, seed=1)):
        known = known.and_rows(saving.signature_answers(picture[np.newaxis]))
    return known


@tried("Single values in and out", SAVED_MODEL)
def single_values(saving: Saving) -> Known:
    tf = saving.tf
    return saving.functions(
        {"degrees": np.float32(30), "scale": np.float32(2)},
        is_whole=True,
        serving_default=(
            lambda degrees, scale: {"kelvin": degrees * scale + 273.15},
            tf.TensorSpec([], tf.float32, "degrees"),
            tf.TensorSpec([], tf.float32, "scale"),
        ),
    )


@tried("Unknown number of dimensions", SAVED_MODEL)
def unknown_rank(saving: Saving) -> Known:
    tf = saving.tf
    return saving.functions(
        numbers(2, 3, 4),
        is_whole=True,
        serving_default=(
            lambda x: {"half": x / 2, "sum": tf.reduce_sum(x)},
            tf.TensorSpec(None, tf.float32, "x"),
        ),
    )


@tried("First dimensions that differ: goods beside one customer", SAVED_MODEL)
def other_first_dimensions(saving: Saving) -> Known:
    tf = saving.tf
    return saving.functions(
        {"goods": numbers(4, 3), "customer": numbers(3)},
        is_whole=True,
        serving_default=(
            lambda goods, customer: {"scores": tf.linalg.matvec(goods, customer)},
            tf.TensorSpec([None, 3], tf.float32, "goods"),
            tf.TensorSpec([3], tf.float32, "customer"),
        ),
    )
