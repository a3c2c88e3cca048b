"""All of Keras's private API that Basket uses, each name behind one function.

Layer._flatten_layers
    The layers inside of layers, such as those of attention: `layers` exists on models
    only, and leaves them out.

tests/integration/engines/test_keras_private.py fails by name when it moves.
"""

from typing import Any


def nested_layers(layer: Any) -> list[Any]:
    """Return all layers inside a layer or a model, at any depth, in its own order."""
    return list(layer._flatten_layers(include_self=False))
