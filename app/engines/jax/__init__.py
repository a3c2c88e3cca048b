"""The engine that runs Keras files on JAX."""
