"""Checks of what Basket promises under load and faults: python -m bench.reliability."""
