"""Keras's private API is where app.engines.keras.keras_private expects it."""

from app.engines.keras.keras_private import (
    nested_layers,
    registered,
    unregister,
)
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


def test_registrations_are_listed_and_ended(keras):
    """GLOBAL_CUSTOM_NAMES has registered classes; a name of another class stays."""

    def register():
        decorate = keras.saving.register_keras_serializable("mine")
        return decorate(type("Scaled", (keras.layers.Layer,), {}))

    old, new = register(), register()
    assert {old, new} <= {*registered()}
    unregister([old])
    assert old not in registered()
    assert keras.saving.get_registered_object("mine>Scaled") is new
    unregister([new])
    assert keras.saving.get_registered_object("mine>Scaled") is None
