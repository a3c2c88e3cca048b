"""The process that computes TensorFlow's reference outputs for other engines.

`python -m app.engines.tensorflow.reference_process FILE FOLDER [--export EXPORT]
[--user-code]` writes into FOLDER what app.engines.reference reads there.
"""

import argparse
from pathlib import Path

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE
from app.engines.loading import error_summary, refuse_strings
from app.engines.python.service import find_service
from app.engines.random_rows import accepted_random_rows
from app.engines.reference import (
    ERROR_FILE,
    Reference,
    run_one_by_one,
    write_reference,
)
from app.engines.tensorflow.export import export_model
from app.engines.tensorflow.keras_file import KerasTensorFlowEngine, load
from app.errors import ModelLoadError
from app.settings import Settings

# Few, so that a large model's outputs stay small.
_ROWS = 5


def main(file: Path, folder: Path, export: Path | None, *, user_code: bool) -> None:
    """Write the reference, and the SavedModel as `export` if one is wanted.

    With `user_code` the file may use classes that service.py beside it registers.

    Raises:
        ModelLoadError: TensorFlow can't read, run or export the model.
    """
    # They are registered as long as it is referenced.
    service = find_service(file.parent, Settings(user_code=True)) if user_code else None
    model = load(file)
    del service
    engine = KerasTensorFlowEngine(model)
    signature = engine.signatures[DEFAULT_SIGNATURE]
    refuse_strings(signature)
    random = np.random.default_rng(0)
    rows = accepted_random_rows(engine, DEFAULT_SIGNATURE).make(_ROWS, random)
    outputs = run_one_by_one(engine, rows)
    found = Reference(signature, rows, outputs, engine.weight_bytes)
    write_reference(folder, found)
    if export is not None:
        export_model(model, "savedmodel", export)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--user-code", action="store_true")
    given = parser.parse_args()
    try:
        main(given.file, given.folder, given.export, user_code=given.user_code)
    except Exception as problem:  # Keras and TensorFlow raise whatever they raise
        known = isinstance(problem, ModelLoadError)
        reason = f"TensorFlow can't run it: {error_summary(problem)}"
        (given.folder / ERROR_FILE).write_text(str(problem) if known else reason)
