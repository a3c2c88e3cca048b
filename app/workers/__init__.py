"""What Gunicorn runs as workers: for clients with threads, and for models.

Each class replaces a few methods of Gunicorn's own, for reasons that its module says.
"""
