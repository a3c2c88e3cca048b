"""The article's experiment on an NVIDIA GPU, with JAX: `python -m bench.gpu`."""

# Of the folder that the model's own process fills.
MODEL_NAME, FOUND_FILE = "recurrent", "found.json"
