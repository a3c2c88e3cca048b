"""The Open Inference Protocol (V2) over HTTP, with Triton's extensions."""
