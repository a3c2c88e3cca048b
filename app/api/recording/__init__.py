"""What is kept of requests beside the metrics: captured ones, and the request log."""
