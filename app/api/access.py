"""API keys: if any is set, every route except health requires one."""

import hmac
from collections.abc import Callable

from flask import Flask, request

from app.api.environ import Environ, authorization
from app.errors import Unauthorized

# Endpoints that need no key. Not paths, as some contain the name of a model.
_OPEN = (
    *("operations.healthz", "operations.readyz"),
    *("v2_health.live", "v2_health.ready", "v2_health.model_ready"),
)


def key_check(keys: tuple[str, ...]) -> Callable[[Environ], None]:
    """Return a check that raises Unauthorized without `Authorization: Bearer KEY`."""
    known = [key.encode() for key in keys]

    def check(environ: Environ) -> None:
        scheme, key = authorization(environ)
        given = key.encode()
        # A list, not a generator: in constant time, every key is compared.
        found = [hmac.compare_digest(given, each) for each in known]
        if scheme != "bearer" or not any(found):
            raise Unauthorized("this server wants Authorization: Bearer KEY")

    return check if keys else lambda _: None


def install_key_check(app: Flask, check: Callable[[Environ], None]) -> None:
    """Check keys before anything else of a request that Flask answers."""

    def check_unless_open() -> None:
        if request.endpoint not in _OPEN:
            check(request.environ)

    app.before_request(check_unless_open)
