"""Samples of answered requests in files, and the request log. Knows no HTTP."""
