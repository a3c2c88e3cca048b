"""A model's scores as the names of what it sees."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.codec import json_text
from app.engines.base import Array, Tensors
from app.settings.image_config import ImageClass


def encode(
    outputs: Tensors, classes: Sequence[ImageClass], top: int | None, *, single: bool
) -> bytes:
    """Write the best class of each row: {"class_id", "class_name", "score"}.

    Outputs is one array (rows, classes). With `top` each row gets the list of its best
    so many, best first. A `single` row stands alone, several stand in a list.
    """
    (scores,) = outputs.values()
    lists = [_best(row, classes, top or 1) for row in scores]
    answers = [best[0] for best in lists] if top is None else lists
    return json_text.dumps_any_float(answers[0] if single else answers)


def _best(row: Array, classes: Sequence[ImageClass], top: int) -> list[dict[str, Any]]:
    if top == 1:
        places = [int(row.argmax())]
    else:
        # Stable, so that of equal scores the first class comes first, as in argmax.
        order = np.argsort(-row.astype(np.float64), kind="stable")
        places = order[:top].tolist()
    return [
        {
            "class_id": classes[place].id,
            "class_name": classes[place].name,
            "score": json_text.in_own_width(row[place]),
        }
        for place in places
    ]
