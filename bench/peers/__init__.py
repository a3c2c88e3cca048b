"""Basket beside other model servers: the same machine, models and requests."""
