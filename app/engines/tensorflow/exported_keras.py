"""Runs .keras and .h5 files on TensorFlow in a process whose Keras runs on JAX.

Keras has one backend in a process. So another process exports the model with Keras on
TensorFlow, and TensorFlow alone reads the SavedModel here.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from app.engines.reference import export_saved_model
from app.engines.tensorflow import saved_model
from app.settings import Settings


def open_engine(file: Path, settings: Settings) -> saved_model.SavedModelEngine:
    """Export a .keras or .h5 file, and load the SavedModel.

    Raises:
        ModelLoadError: TensorFlow can't read or export it.
    """
    with TemporaryDirectory(prefix="basket-") as folder:
        exported = Path(folder) / "saved_model"
        export_saved_model(file, exported, user_code=settings.user_code)
        engine = saved_model.open_engine(exported / "saved_model.pb", settings)
    engine.platform = "tensorflow_keras"
    return engine
