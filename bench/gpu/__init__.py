"""The article's experiment on an NVIDIA GPU, with JAX: `python -m bench.gpu`."""
