"""Shared by tests and benchmarks: servers, HTTP clients, checks of answers, load."""
