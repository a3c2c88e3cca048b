"""The process that computes TensorFlow's reference outputs for other engines.

`python -m app.engines.tensorflow.reference_process FILE FOLDER [--export]
[--user-code]` writes into FOLDER what app.engines.reference reads there.
"""

import sys
from pathlib import Path

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE
from app.engines.loading import error_summary, refuse_strings
from app.engines.python.service import find_service
from app.engines.random_rows import accepted_random_rows
from app.engines.reference import (
    ERROR_FILE,
    EXPORT_FOLDER,
    Reference,
    write_reference,
)
from app.engines.tensorflow.export import export_model
from app.engines.tensorflow.keras_file import KerasTensorFlowEngine, load
from app.errors import ModelLoadError
from app.settings import Settings

# Few, so that a large model's outputs stay small; not a power of two, so that an engine
# that pads batches has to.
_ROWS = 5


def main(file: Path, folder: Path, *, with_export: bool, user_code: bool) -> None:
    """Write the reference, and with `with_export` the SavedModel.

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
    found = Reference(signature, rows, engine.run(rows), engine.weight_bytes)
    write_reference(folder, found)
    if with_export:
        export_model(model, "savedmodel", folder / EXPORT_FOLDER)


if __name__ == "__main__":
    target = Path(sys.argv[2])
    try:
        options = sys.argv[3:]
        main(
            Path(sys.argv[1]),
            target,
            with_export="--export" in options,
            user_code="--user-code" in options,
        )
    except Exception as problem:  # Keras and TensorFlow raise whatever they raise
        known = isinstance(problem, ModelLoadError)
        reason = f"TensorFlow can't run it: {error_summary(problem)}"
        (target / ERROR_FILE).write_text(str(problem) if known else reason)
