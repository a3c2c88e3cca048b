"""Write a SavedModel that raises on a marked row and echoes all others.

`python -m testing.poison_model FOLDER` writes FOLDER/poison/1, in a process of its
own, so that the caller need not import TensorFlow.
"""

import sys
from pathlib import Path

from testing.processes import run_python

# Values of a row; one whose first is negative makes the model raise.
WIDTH = 4


def write(folder: Path) -> None:
    """Write the model into a model folder, in another process."""
    run_python("-m", "testing.poison_model", str(folder))


def _save(folder: Path) -> None:
    from app.engines.tensorflow.engine import tf  # noqa: PLC0415

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, "row")])
    def echo(row):
        is_valid = tf.debugging.assert_non_negative(row[:, 0], "a poisoned row")
        with tf.control_dependencies([is_valid]):
            return {"echo": tf.identity(row)}

    module = tf.Module()
    module.echo = echo
    path = str(folder / "poison" / "1")
    tf.saved_model.save(module, path, signatures={"serving_default": echo})


if __name__ == "__main__":
    _save(Path(sys.argv[1]))
