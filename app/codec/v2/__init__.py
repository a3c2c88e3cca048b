"""Bodies of the Open Inference Protocol (V2): tensors in JSON and in binary."""
