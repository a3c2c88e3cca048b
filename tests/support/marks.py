"""Marks that several test modules share."""

import pytest

# For tests that import TensorFlow: TensorFlow and Keras deprecate their own parts.
USES_TENSORFLOW = [
    pytest.mark.keras,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
