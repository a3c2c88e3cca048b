"""The page: what the server does now, and a place to try a model."""
