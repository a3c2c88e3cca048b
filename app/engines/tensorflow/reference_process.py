"""The process that loads a Keras file in TensorFlow for engines that have none.

`python -m app.engines.tensorflow.reference_process FILE FOLDER [--export]` writes into
FOLDER what app.engines.reference reads there.
"""

import sys
from pathlib import Path

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE
from app.engines.random_rows import rows_for
from app.engines.reading import in_one_line, refuse_text
from app.engines.reference import ERROR_FILE, EXPORT_FOLDER, Reference, write
from app.engines.tensorflow.export import write as export
from app.engines.tensorflow.keras_file import KerasTensorFlowEngine, load
from app.errors import ModelLoadError

# Few, so that a large model's answers stay small, and not a round number, so that an
# engine that fills batches up has to.
_ROWS = 5


def main(file: Path, folder: Path, *, with_export: bool) -> None:
    """Write the reference, and the SavedModel if asked.

    Raises:
        ModelLoadError: TensorFlow can't read, run or export the model.
    """
    model = load(file)
    engine = KerasTensorFlowEngine(model)
    signature = engine.signatures[DEFAULT_SIGNATURE]
    refuse_text(signature)
    random = np.random.default_rng(0)
    rows = rows_for(engine, DEFAULT_SIGNATURE).make(_ROWS, random)
    found = Reference(signature, rows, engine.run(rows), engine.weight_bytes)
    write(folder, found)
    if with_export:
        export(model, "savedmodel", folder / EXPORT_FOLDER)


if __name__ == "__main__":
    target = Path(sys.argv[2])
    try:
        main(Path(sys.argv[1]), target, with_export="--export" in sys.argv[3:])
    except Exception as problem:  # Keras and TensorFlow raise whatever they raise
        known = isinstance(problem, ModelLoadError)
        reason = f"TensorFlow can't run it: {in_one_line(problem)}"
        (target / ERROR_FILE).write_text(str(problem) if known else reason)
