"""The engine that runs batches on a TensorFlow Serving."""
