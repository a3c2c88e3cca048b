"""Bytes to arrays and back. Knows neither Flask nor any framework."""
