"""gRPC: TensorFlow Serving's and Triton's APIs, into the queue of HTTP's requests.

Calls that predict take the path of all inference requests. All others ask the HTTP
route that answers the same, so that rights, errors and values can't differ.
"""
