"""The heart: rows in, rows out. Knows neither HTTP nor any framework."""
