"""OpenVINO without its sender of usage figures."""

import sys
from importlib import import_module
from typing import Any


def openvino() -> Any:
    """The package openvino, which reports to nobody that it is used.

    By itself it sends an event over the network when it is imported, and others when
    it converts a model. Without the package that sends them it does without.
    """
    modules: dict[str, Any] = sys.modules
    modules.setdefault("openvino_telemetry", None)
    return import_module("openvino")
