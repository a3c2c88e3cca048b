"""Malformed requests, over all routes of a real server."""
