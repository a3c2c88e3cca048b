"""Long arrays of numbers in JSON text, which never become Python objects."""
