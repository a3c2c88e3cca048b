"""The process in which Keras runs on TensorFlow for other engines.

`python -m app.engines.tensorflow.reference_process FILE FOLDER [--compute]
[--export EXPORT] [--user-code]` writes the reference outputs, or why there are none,
into FOLDER, where app.engines.reference reads them.
"""

import argparse
from pathlib import Path

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE
from app.engines.keras.own_code import offered
from app.engines.loading import refuse_strings
from app.engines.python.service import find_service
from app.engines.random_rows import accepted_random_rows
from app.engines.reference import (
    Reference,
    run_one_by_one,
    write_reference,
    written_errors,
)
from app.engines.tensorflow.export import export_model
from app.engines.tensorflow.keras_file import KerasTensorFlowEngine, load
from app.settings import Settings

# Few, so that a large model's outputs stay small.
_ROWS = 5


def main(
    file: Path,
    folder: Path,
    export: Path | None,
    *,
    computes: bool,
    user_code: bool,
) -> None:
    """Write the reference, and the SavedModel as `export`, those that are wanted.

    With `user_code` the file may use classes of the service.py beside it.

    Raises:
        ModelLoadError: TensorFlow can't read, run or export the model.
    """
    # Its classes are registered as long as it is referenced.
    service = find_service(file.parent, Settings(user_code=True)) if user_code else None
    with offered(service):
        model = load(file)
    del service
    if computes:
        _write_reference(KerasTensorFlowEngine(model), folder)
    if export is not None:
        export_model(model, "savedmodel", export)


def _write_reference(engine: KerasTensorFlowEngine, folder: Path) -> None:
    """Write outputs of random rows.

    Raises:
        ModelLoadError: the model has strings.
    """
    signature = engine.signatures[DEFAULT_SIGNATURE]
    refuse_strings(signature)
    random = np.random.default_rng(0)
    rows = accepted_random_rows(engine, DEFAULT_SIGNATURE).make(_ROWS, random)
    outputs = run_one_by_one(engine.run, rows)
    found = Reference(signature, rows, outputs, engine.weight_bytes)
    write_reference(folder, found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compute", action="store_true")
    parser.add_argument("--export", type=Path)
    parser.add_argument("--user-code", action="store_true")
    given = parser.parse_args()
    with written_errors(given.folder):
        main(
            given.file,
            given.folder,
            given.export,
            computes=given.compute,
            user_code=given.user_code,
        )
