"""Files that are not what their names say, or not for this Keras."""

import json
import zipfile
from pathlib import Path
from typing import Any

from testing.tried.case import KERAS, tried
from testing.tried.saving import Known, Saving, numbers

NOTHING = Known((), ())


def _model(saving: Saving) -> Any:
    row = saving.keras.Input((4,))
    return saving.keras.Model(row, saving.keras.layers.Dense(2)(row))


def _rewrite(file: Path, **documents: Any) -> None:
    """Replace JSON documents within a .keras file; each is a function of the old."""
    with zipfile.ZipFile(file) as old:
        contents = {name: old.read(name) for name in old.namelist()}
    for name, change in documents.items():
        document = json.loads(contents[f"{name}.json"])
        contents[f"{name}.json"] = json.dumps(change(document)).encode()
    with zipfile.ZipFile(file, "w") as new:
        for name, content in contents.items():
            new.writestr(name, content)


@tried("A classifier of KerasHub", KERAS, refusal="is code of keras_hub")
def keras_hub(saving: Saving) -> Known:
    file = saving.folder / "model.keras"
    saving.save(_model(saving))
    hub = {
        "module": "keras_hub.src.models.bert.bert_text_classifier",
        "class_name": "BertTextClassifier",
        "registered_name": "keras_hub>BertTextClassifier",
    }
    _rewrite(file, config=lambda config: config | hub)
    return NOTHING


@tried("HDF5 under the name .keras, as older versions wrote it", KERAS)
def hdf5_as_keras(saving: Saving) -> Known:
    known = saving.save(_model(saving), numbers(4, 4), "model.h5")
    (saving.folder / "model.h5").rename(saving.folder / "model.keras")
    return known


@tried("A file of which half has been copied", KERAS, refusal="is no whole .keras file")
def half_a_file(saving: Saving) -> Known:
    file = saving.folder / "model.keras"
    saving.save(_model(saving))
    file.write_bytes(file.read_bytes()[:5000])
    return NOTHING


@tried("An empty file", KERAS, refusal="is no whole .keras file (0 bytes)")
def empty_file(saving: Saving) -> Known:
    saving.folder.mkdir(parents=True)
    (saving.folder / "model.keras").touch()
    return NOTHING
