"""Checks of what Basket promises under load and faults."""
