"""Shared by all engines for Keras files, whatever Keras's backend."""
