"""Engines that run on TensorFlow: Keras files and SavedModels.

The environment is set here, before any module of this package imports a framework.
"""

import os

from app.engines.optional_imports import import_framework

# TensorFlow imports Keras, which reads this. A default only: beside the JAX engine,
# SavedModels run on TensorFlow and Keras on JAX.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# Hides the informational messages of TensorFlow's C++ code.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

_needs_jax = os.environ["KERAS_BACKEND"] == "jax"
import_framework(
    "tensorflow",
    *("matplotlib", "sklearn"),
    *([] if _needs_jax else ["jax", "scipy"]),
)
