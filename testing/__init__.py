"""What tests and benches share: servers as processes, HTTP clients, load, pictures."""
