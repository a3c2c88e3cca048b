"""The headers of the request that Flask answers, as all else in Basket has them."""

from collections.abc import Mapping

from flask import request


def request_headers() -> Mapping[str, str]:
    """Return the headers by names in lower case."""
    return {name.lower(): value for name, value in request.headers}
