"""The head of the request that Flask answers, as its rim has read it."""

from flask import request

from app.call import HEAD_KEY, Head


def head() -> Head:
    """Return the head."""
    found: Head = request.environ[HEAD_KEY]
    return found
