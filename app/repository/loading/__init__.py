"""Loads of versions: quarantine, checks, load, warm-up and start."""
