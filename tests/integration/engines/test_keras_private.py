"""Keras's private API is where app.engines.keras.keras_private expects it."""

from app.engines.keras.keras_private import nested_layers
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


def test_flatten_layers_finds_layers_inside_of_layers(keras):
    """Layer._flatten_layers lists a wrapper and the layer that it wraps."""
    dense = keras.layers.Dense(2, name="inner")
    wrapper = keras.layers.TimeDistributed(dense, name="wrapper")
    model = keras.Sequential([keras.Input((3, 4)), keras.Sequential([wrapper])])
    names = [layer.name for layer in nested_layers(model)]
    assert names.index("wrapper") < names.index("inner")
    assert nested_layers(dense) == []
