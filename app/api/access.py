"""API keys: every route but health wants one, once any is set."""

import hmac

from flask import Flask, request

from app.errors import Unauthorized

# By their endpoints, not their paths: some hold the name of a model.
_OPEN = (
    *("operations.healthz", "operations.readyz"),
    *("v2_health.live", "v2_health.ready", "v2_health.model_ready"),
)


def install_api_keys(app: Flask, keys: tuple[str, ...]) -> None:
    """Ask for `Authorization: Bearer KEY` before anything else is looked at."""
    if not keys:
        return
    known = [key.encode() for key in keys]

    def check() -> None:
        if request.endpoint in _OPEN:
            return
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        given = key.strip().encode()
        # A list and not a generator: every key is compared, found or not.
        found = [hmac.compare_digest(given, each) for each in known]
        if scheme.lower() != "bearer" or not any(found):
            raise Unauthorized("this server wants Authorization: Bearer KEY")

    app.before_request(check)
