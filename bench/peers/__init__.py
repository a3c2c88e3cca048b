"""Basket beside other servers of Keras models: one run, one machine, one model."""
