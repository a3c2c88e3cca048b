"""python -m bench.models_tried: models as users save them, served and compared.

Saves each model of testing.tried.models, serves all of them, and prints the table of
docs/models_tried.md: whether each is served, and how far its answers differ from
Keras's `predict`, or from what the SavedModel, LiteRT or ONNX Runtime itself answers.
"""

import os

from bench.report import table
from testing.tried.case import Tried
from testing.tried.models import TRIED
from testing.tried.serving import Outcome, serving


def lines(outcomes: dict[Tried, Outcome]) -> list[str]:
    """Return the lines of the table."""
    rows = []
    for model, outcome in outcomes.items():
        works = "yes"
        if outcome.unbatched:
            works = f"yes, {outcome.unbatched.partition(': ')[2]}".replace("|", "\\|")
        difference = f"{outcome.difference:.0e}" if outcome.difference else "0"
        if outcome.refusal:
            works, difference = f"no: {outcome.refusal}".replace("|", "\\|"), ""
        rows.append((model.title, model.form, works, difference))
    return table(("model", "saved with", "works", "difference"), rows)


def main() -> None:
    """Print the table."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    # Not at the top: tests of the list must not import TensorFlow.
    from app.engines.tensorflow.engine import tf  # noqa: PLC0415
    from app.engines.tensorflow.keras_file import keras  # noqa: PLC0415

    with serving(TRIED, keras, tf) as served:
        print(*lines({model: served.outcome(model) for model in TRIED}), sep="\n")


if __name__ == "__main__":
    main()
