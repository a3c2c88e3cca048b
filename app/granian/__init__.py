"""Granian's side of Basket, as gunicorn.conf.py and app.workers are Gunicorn's.

Granian has no file with hooks. What gunicorn.conf.py does before the workers start is
done here in the only worker, when it imports wsgi.py. Requests come over RSGI, which is
Granian's own interface, and are answered on its event loop.
"""

import sys


def is_serving() -> bool:
    """Say whether this process is a worker of Granian."""
    return "granian" in sys.modules
