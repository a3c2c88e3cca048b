"""The engine that runs Keras files on JAX.

The environment is set here, before any module of this package imports a framework.
"""

import os

from app.engines.optional_imports import import_framework

os.environ["KERAS_BACKEND"] = "jax"
# By default, JAX rounds floats to 10 bits on the matrix units of GPUs, and truncates
# 64-bit numbers to 32 bits.
os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "float32")
os.environ["JAX_ENABLE_X64"] = "1"

import_framework("keras", "matplotlib", "sklearn")
