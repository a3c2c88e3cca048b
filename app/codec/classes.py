"""Class scores to the names of the best classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.codec import json_text
from app.engines.base import Array, Tensors
from app.settings.image_config import ImageClass


def encode(outputs: Tensors, classes: Sequence[ImageClass], top: int | None) -> bytes:
    """Return JSON with each row's best class: {"class_id", "class_name", "score"}.

    `outputs` is one array (rows, classes). With `top` each row gets the list of its
    `top` best, best first. A single row is not in a list, several are.
    """
    (scores,) = outputs.values()
    lists = [_best(row, classes, top or 1) for row in scores]
    answers = [best[0] for best in lists] if top is None else lists
    return json_text.dumps_any_float(answers[0] if len(answers) == 1 else answers)


def _best(row: Array, classes: Sequence[ImageClass], top: int) -> list[dict[str, Any]]:
    if top == 1:
        indexes = [int(row.argmax())]
    else:
        # A stable sort puts the first of equal scores first, as argmax does.
        order = np.argsort(-row.astype(np.float64), kind="stable")
        indexes = order[:top].tolist()
    return [
        {
            "class_id": classes[index].id,
            "class_name": classes[index].name,
            "score": json_text.shortest_floats(row[index]),
        }
        for index in indexes
    ]
