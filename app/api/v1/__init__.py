"""TensorFlow Serving's REST API (V1), and what KServe adds to it."""
