"""All of Keras's private API that Basket uses, each name behind one function.

Layer._flatten_layers
    The layers inside of layers, such as those of attention: `layers` exists on models
    only, and leaves them out.
keras.src.saving.object_registration.GLOBAL_CUSTOM_OBJECTS, GLOBAL_CUSTOM_NAMES
    What register_keras_serializable has registered, by name and by object. Keras has no
    function that ends a registration.

tests/integration/engines/test_keras_private.py fails by name when it moves.
"""

import sys
from collections.abc import Iterable
from typing import Any


def nested_layers(layer: Any) -> list[Any]:
    """Return all layers inside a layer or a model, at any depth, in its own order."""
    return list(layer._flatten_layers(include_self=False))


def registered() -> list[Any]:
    """Return the classes and functions that are registered; imports nothing."""
    if "keras" not in sys.modules:
        return []
    from keras.src.saving import object_registration  # noqa: PLC0415

    return list(object_registration.GLOBAL_CUSTOM_NAMES)


def unregister(registrations: Iterable[Any]) -> None:
    """End registrations of `registered`, unless a name is another's by now."""
    from keras.src.saving import object_registration  # noqa: PLC0415

    objects = object_registration.GLOBAL_CUSTOM_OBJECTS
    for each in registrations:
        name = object_registration.GLOBAL_CUSTOM_NAMES.pop(each, None)
        if objects.get(name) is each:
            del objects[name]
