"""The engine that sends batches to a TensorFlow Serving."""
