"""What one request of a stranger costs: CPU, memory, and other clients' time."""
