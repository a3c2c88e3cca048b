"""The engine that runs TFLite files on LiteRT, TensorFlow's runtime for devices."""

from app.engines.optional_imports import import_framework

import_framework("ai_edge_litert.interpreter")
