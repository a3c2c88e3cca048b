"""Files that are not what their names say, or not for this Keras."""

from pathlib import Path

from testing.tried.case import KERAS, tried
from testing.tried.saving import Known, Saving

NOTHING = Known((), ())


def _saved(saving: Saving, name: str = "model.keras") -> Path:
    keras = saving.keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="dense")])
    saving.save(model, name=name)
    return saving.folder / name


@tried("A file of which half has been copied", KERAS, refusal="is no whole .keras file")
def half_a_file(saving: Saving) -> Known:
    file = _saved(saving)
    file.write_bytes(file.read_bytes()[:5000])
    return NOTHING


@tried("An empty file", KERAS, refusal="is no whole .keras file (0 bytes)")
def empty_file(saving: Saving) -> Known:
    saving.folder.mkdir(parents=True)
    (saving.folder / "model.keras").touch()
    return NOTHING
