"""gRPC: the APIs of TensorFlow Serving and of Triton, into the queue of HTTP's requests.

Calls that predict take the path of all inference requests. All others ask the HTTP
route that answers the same, so that rights, errors and values can't differ.
"""
