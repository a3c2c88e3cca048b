"""The process in which Keras runs on TensorFlow for other engines.

`python -m app.engines.tensorflow.reference_process FILE FOLDER [--compute]
[--export EXPORT] [--user-code]` writes the reference outputs, or why there are none,
into FOLDER, where app.engines.reference reads them.
"""

import argparse
from pathlib import Path

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE
from app.engines.loading import error_summary, refuse_strings
from app.engines.python.service import find_service
from app.engines.random_rows import accepted_random_rows
from app.engines.reference import ERROR_FILE, Reference, write_reference
from app.engines.tensorflow.export import export_model
from app.engines.tensorflow.keras_file import KerasTensorFlowEngine, load
from app.errors import ModelLoadError
from app.settings import Settings

# Few, so that a large model's outputs stay small; not a power of two, so that an engine
# that pads batches has to.
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

    With `user_code` the file may use classes that service.py beside it registers.

    Raises:
        ModelLoadError: TensorFlow can't read, run or export the model.
    """
    # They are registered as long as it is referenced.
    service = find_service(file.parent, Settings(user_code=True)) if user_code else None
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
    found = Reference(signature, rows, engine.run(rows), engine.weight_bytes)
    write_reference(folder, found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compute", action="store_true")
    parser.add_argument("--export", type=Path)
    parser.add_argument("--user-code", action="store_true")
    given = parser.parse_args()
    try:
        main(
            given.file,
            given.folder,
            given.export,
            computes=given.compute,
            user_code=given.user_code,
        )
    except Exception as problem:  # Keras and TensorFlow raise whatever they raise
        known = isinstance(problem, ModelLoadError)
        reason = f"TensorFlow can't run it: {error_summary(problem)}"
        (given.folder / ERROR_FILE).write_text(str(problem) if known else reason)
