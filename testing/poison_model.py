"""Write a SavedModel that raises on a marked row and echoes all others.

`python -m testing.poison_model FOLDER` writes FOLDER/poison/1. As a process of
its own, so that who asks for it need not import TensorFlow.
"""

import subprocess
import sys
from pathlib import Path

from testing.server import ROOT

# A row whose first value is below zero is poison.
WIDTH = 4


def write(folder: Path) -> None:
    """Have another process write the model into a model folder."""
    command = [sys.executable, "-m", "testing.poison_model", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def _save(folder: Path) -> None:
    from app.engines.tensorflow.engine import tf  # noqa: PLC0415

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, "row")])
    def echo(row):
        is_sound = tf.debugging.assert_non_negative(row[:, 0], "a poisoned row")
        with tf.control_dependencies([is_sound]):
            return {"echo": tf.identity(row)}

    module = tf.Module()
    module.echo = echo
    path = str(folder / "poison" / "1")
    tf.saved_model.save(module, path, signatures={"serving_default": echo})


if __name__ == "__main__":
    _save(Path(sys.argv[1]))
