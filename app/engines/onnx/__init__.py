"""The engine that runs ONNX files on ONNX Runtime."""

from app.engines.optional_imports import import_framework

# Builds for some systems send usage events unless this is called.
import_framework("onnxruntime").disable_telemetry_events()
