"""gRPC: TensorFlow Serving's and Triton's APIs, into the queue of HTTP's requests."""
