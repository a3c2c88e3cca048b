"""Measures what the page costs, and takes its picture."""
