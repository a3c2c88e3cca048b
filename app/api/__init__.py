"""HTTP in, HTTP out. Knows Flask; knows no framework."""
