"""Who may do what: strangers, clients with an API key, and admins.

Without API keys everyone is a client; without admin keys nobody is an admin.
"""

from flask import Flask, request

from app.api.access.cross_site import CrossSiteCheck
from app.api.access.keys import Keys
from app.api.environ import Environ, authorization
from app.errors import BadInput, Forbidden, Unauthorized

# Endpoints, not paths, as some paths contain the name of a model.
# Pages, to which other sites may link. / is the page for browsers alone.
_PAGES = ("operations.root", "page.docs")
# Those that need no key: the pages, which hold no secret, and health.
_OPEN = (
    *(*_PAGES, "page.file", "operations.healthz", "operations.readyz"),
    *("v2_health.live", "v2_health.ready", "v2_health.model_ready"),
)
# Those that change the server:
CHANGING = ("v2_repository.load", "v2_repository.unload", "v2_repository.traffic")
_JSON = "application/json"


class Rights:
    """Checks requests; an admin may do what a client may."""

    def __init__(self, clients: Keys, admins: Keys, cross_site: CrossSiteCheck) -> None:
        """Store both kinds of keys, and the check for a server without API keys."""
        self._clients = clients
        self._admins = admins
        self._needs_key = clients.are_set()
        self.cross_site = cross_site

    def check(self, environ: Environ) -> None:
        """Check that a request may use the server as a client.

        Raises:
            Unauthorized: there are API keys, and the request has none of them.
            Forbidden: there are none, and a page of another site sent the request.
        """
        if not self._needs_key:
            self.cross_site.check(environ)
        elif not self._has_known_key(environ):
            reason = "this server wants Authorization: Bearer KEY"
            if "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ:
                # A browser's preflight, which has no key; allowed ones were answered.
                reason += (
                    "; to let pages of another origin ask, add it, such as "
                    "https://shop.example.com, to BASKET_ALLOWED_ORIGINS"
                )
            raise Unauthorized(reason)

    def check_open(self, environ: Environ, *, is_page: bool) -> None:
        """Check a request that needs no key.

        Raises:
            Forbidden: there are no API keys, and a page of another site sent it,
                unless it follows a link to a page of this server.
        """
        if not self._needs_key:
            self.cross_site.check(environ, is_page=is_page)

    def is_client(self, environ: Environ) -> bool:
        """Return whether a request may see names, shapes and reasons."""
        return not self._needs_key or self._has_known_key(environ)

    def is_admin(self, environ: Environ) -> bool:
        """Return whether a request has an admin key."""
        return self._admins.have(_key(environ))

    def sees_all(self, environ: Environ) -> bool:
        """Return whether a request may see settings, errors and processes.

        Without any keys every client may.
        """
        has_keys = self._needs_key or self._admins.are_set()
        return not has_keys or self.is_admin(environ)

    def check_admin(self, environ: Environ) -> None:
        """Check that a request may change the server.

        Raises:
            Unauthorized: it has no key of this server.
            Forbidden: its key is no admin key, or there are none, or a page of another
                site sent it.
            BadInput: its Content-Type is not JSON.
        """
        self.check(environ)
        if not self._admins.are_set():
            raise Forbidden(
                "nothing on this server can be changed over HTTP: set "
                "BASKET_ADMIN_KEYS to turn this on"
            )
        key = _key(environ)
        if not self._admins.have(key):
            if self._clients.have(key):
                raise Forbidden("this takes an admin key; given an API key")
            raise Unauthorized("this takes an admin key: Authorization: Bearer KEY")
        _check_json(environ)

    def _has_known_key(self, environ: Environ) -> bool:
        key = _key(environ)
        return self._clients.have(key) or self._admins.have(key)


def install_checks(app: Flask, rights: Rights) -> None:
    """Check rights before anything else of a request that Flask answers."""

    def check() -> None:
        if request.endpoint in _OPEN:
            is_page = request.endpoint in _PAGES
            rights.check_open(request.environ, is_page=is_page)
        elif request.endpoint in CHANGING and request.method != "OPTIONS":
            rights.check_admin(request.environ)
        else:
            rights.check(request.environ)

    app.before_request(check)


def _key(environ: Environ) -> bytes:
    """Return the key of a request; b"", which is no key, if it has none."""
    scheme, key = authorization(environ)
    return key.encode() if scheme == "bearer" else b""


def _check_json(environ: Environ) -> None:
    """Refuse the types that a page may send to another site without asking first.

    Triton's client sends no Content-Type at all.
    """
    sent = environ.get("CONTENT_TYPE") or _JSON
    if sent.partition(";")[0].strip().lower() != _JSON:
        raise BadInput(f"Content-Type: expected {_JSON}, given {sent[:80]!r}")
