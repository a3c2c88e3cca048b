"""Engines that run on TensorFlow: Keras files and SavedModels.

The environment is set here, before any module of this package imports a framework.
"""

import os
from contextlib import nullcontext

from app import gpus
from app.engines.noise import hidden_noise
from app.engines.optional_imports import import_framework

# TensorFlow imports Keras, which reads this. A default only: beside the JAX engine,
# SavedModels run on TensorFlow and Keras on JAX.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# With TF_CPP_MIN_LOG_LEVEL the operator chooses what TensorFlow's C++ code writes.
_is_quiet = "TF_CPP_MIN_LOG_LEVEL" not in os.environ and not gpus.installed()
# Hides its informational messages.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

_needs_jax = os.environ["KERAS_BACKEND"] == "jax"
with hidden_noise() if _is_quiet else nullcontext():
    tensorflow = import_framework(
        "tensorflow",
        *("matplotlib", "sklearn"),
        *([] if _needs_jax else ["jax", "scipy"]),
    )
    if _is_quiet:
        # Looks for GPUs, as the first operation would.
        tensorflow.config.list_physical_devices()
