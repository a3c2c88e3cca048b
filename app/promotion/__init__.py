"""How a new version proves itself before it serves, and while it takes over."""
