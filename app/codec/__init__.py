"""Bytes to arrays and back. Knows neither HTTP frameworks nor model frameworks."""
