"""API keys: every route but health wants one, once any is set."""

import hmac
from collections.abc import Callable

from flask import Flask, request

from app.api.environ import Environ, authorization
from app.errors import Unauthorized

# By their endpoints, not their paths: some hold the name of a model.
_OPEN = (
    *("operations.healthz", "operations.readyz"),
    *("v2_health.live", "v2_health.ready", "v2_health.model_ready"),
)


def key_check(keys: tuple[str, ...]) -> Callable[[Environ], None]:
    """What raises Unauthorized unless `Authorization: Bearer KEY` has one of these."""
    known = [key.encode() for key in keys]

    def check(environ: Environ) -> None:
        scheme, key = authorization(environ)
        given = key.encode()
        # A list and not a generator: every key is compared, found or not.
        found = [hmac.compare_digest(given, each) for each in known]
        if scheme != "bearer" or not any(found):
            raise Unauthorized("this server wants Authorization: Bearer KEY")

    return check if keys else lambda _: None


def install_key_check(app: Flask, check: Callable[[Environ], None]) -> None:
    """Check keys before anything else of a request is looked at."""

    def check_unless_open() -> None:
        if request.endpoint not in _OPEN:
            check(request.environ)

    app.before_request(check_unless_open)
