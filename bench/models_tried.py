"""python -m bench.models_tried: models as users save them, served and compared.

Saves each model of testing.tried.models, serves all of them, and prints the table of
docs/models_tried.md: whether each is served, and how far its answers differ from
Keras's `predict`, or from the SavedModel's own signature.
"""

import os
from collections.abc import Iterator

from testing.tried.case import Tried
from testing.tried.models import TRIED
from testing.tried.serving import Outcome, serving


def lines(outcomes: dict[Tried, Outcome]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| model | saved with | works | difference |"
    yield "|---|---|---|---|"
    for model, outcome in outcomes.items():
        works, difference = "yes", f"{outcome.difference:.0e}"
        if outcome.refusal:
            works, difference = f"no: {outcome.refusal}", ""
        elif not outcome.difference:
            difference = "0"
        works = works.replace("|", "\\|")
        yield f"| {model.title} | {model.form} | {works} | {difference} |"


def main() -> None:
    """Print the table."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    # Not at the top: tests of the list must not import TensorFlow.
    import keras  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415

    with serving(TRIED, keras, tf) as served:
        for line in lines({model: served.outcome(model) for model in TRIED}):
            print(line)


if __name__ == "__main__":
    main()
