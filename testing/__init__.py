"""Shared by tests and benchmarks: servers, HTTP clients, load, nginx, pictures."""
