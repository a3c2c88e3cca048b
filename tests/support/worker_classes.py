"""The worker classes that Basket runs under: its own, and Gunicorn's."""

from importlib.util import find_spec

import pytest

GEVENT = pytest.mark.skipif(find_spec("gevent") is None, reason="needs gevent")

# Gunicorn's own, over WSGI: a thread or a greenlet for each request.
GUNICORN = [
    pytest.param(("--worker-class=sync",), id="sync"),
    pytest.param(("--worker-class=gthread", "--threads=8"), id="gthread"),
    pytest.param(("--worker-class=gevent",), id="gevent", marks=GEVENT),
]
ALL = [pytest.param(("--threads=8",), id="event-loop"), *GUNICORN]
