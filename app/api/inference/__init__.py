"""The way of a request that predicts: decode, submit, wait, encode."""
