"""The engine that runs Keras files on OpenVINO."""

import sys
from importlib import import_module
from typing import Any


def import_openvino() -> Any:
    """Return the package openvino, kept from sending usage events.

    It sends an event over the network when it is imported, and more when it converts a
    model, but only if the package openvino_telemetry can be imported.
    """
    modules: dict[str, Any] = sys.modules
    modules.setdefault("openvino_telemetry", None)
    return import_module("openvino")
