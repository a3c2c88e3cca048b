"""Frameworks, for tests that run models in their own process.

Not at the top: tests that are not run must not import TensorFlow.
"""

import pytest


@pytest.fixture(name="tf", scope="session")
def _tf():
    from app.engines.tensorflow.engine import tf  # noqa: PLC0415

    return tf


@pytest.fixture(name="keras", scope="session")
def _keras():
    from app.engines.tensorflow.keras_file import keras  # noqa: PLC0415

    return keras
