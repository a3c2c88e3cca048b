"""One model that was tried, and what came of it."""

from collections.abc import Callable
from dataclasses import dataclass

from testing.tried.saving import Make

KERAS, H5 = "`.keras`", "`.h5`"
EXPORT, SAVED_MODEL = "`model.export`", "`tf.saved_model.save`"
TFLITE, ONNX = "`.tflite`", "`.onnx`"


@dataclass(frozen=True)
class Tried:
    """A model: its title and form in the table, and the function that saves it.

    `refusal` is a part of /readyz's text for a model that is not served, `unbatched`
    one for a model that is served, but not batched, because its rows depend on each
    other. `tolerance` is the largest difference, as a share of the output's largest
    value.
    """

    name: str
    title: str
    form: str
    make: Make
    refusal: str = ""
    tolerance: float = 1e-5
    unbatched: str = ""


LISTED: list[Tried] = []


def tried(
    title: str,
    form: str,
    *,
    refusal: str = "",
    tolerance: float = 1e-5,
    unbatched: str = "",
) -> Callable[[Make], Make]:
    """Return a decorator that lists the function's model, under the function's name."""

    def listed(make: Make) -> Make:
        about = refusal, tolerance, unbatched
        LISTED.append(Tried(make.__name__, title, form, make, *about))
        return make

    return listed
