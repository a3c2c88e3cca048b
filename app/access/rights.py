"""Who may do what: strangers, clients with an API key, and admins.

Without API keys everyone is a client; without admin keys nobody is an admin. Headers
are looked up by names in lower case.
"""

from collections.abc import Mapping

from app.access.cross_site import CrossSiteCheck
from app.access.keys import Keys
from app.call import JSON
from app.errors import BadInput, Forbidden, Unauthorized


def key_of(headers: Mapping[str, str]) -> str:
    """Return what stands behind the scheme of Authorization, "" without it."""
    return headers.get("authorization", "").partition(" ")[2].strip()


class Rights:
    """Checks requests; an admin may do what a client may."""

    def __init__(
        self,
        clients: Keys,
        admins: Keys,
        cross_site: CrossSiteCheck,
    ) -> None:
        """Store both kinds of keys, and the check for a server without API keys."""
        self._clients = clients
        self._admins = admins
        self._needs_key = clients.are_set()
        self.cross_site = cross_site
        self.origins = cross_site.origins

    def check(self, headers: Mapping[str, str], address: str) -> None:
        """Check that a request may use the server as a client.

        `address` is the server's own that the request came in at.

        Raises:
            Unauthorized: there are API keys, and the request has none of them.
            Forbidden: there are none, and a page of another site sent the request.
        """
        if not self._needs_key:
            self.cross_site.check(headers, address)
        elif not self._has_known_key(headers):
            reason = "this server wants Authorization: Bearer KEY"
            if "access-control-request-method" in headers:
                # A browser's preflight, which has no key; allowed ones were answered.
                reason += (
                    "; to let pages of another origin ask, add it, such as "
                    "https://shop.example.com, to BASKET_ALLOWED_ORIGINS"
                )
            raise Unauthorized(reason)

    def check_open(
        self, headers: Mapping[str, str], address: str, *, is_page: bool
    ) -> None:
        """Check a request that needs no key.

        Raises:
            Forbidden: there are no API keys, and a page of another site sent it,
                unless it follows a link to a page of this server.
        """
        if not self._needs_key:
            self.cross_site.check(headers, address, is_page=is_page)

    def is_client(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request may see names, shapes and reasons."""
        return not self._needs_key or self._has_known_key(headers)

    def is_admin(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has an admin key."""
        return self._admins.have(_key(headers))

    def sees_all(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request may see settings, errors and processes.

        Without any keys every client may.
        """
        has_keys = self._needs_key or self._admins.are_set()
        return not has_keys or self.is_admin(headers)

    def check_admin(self, headers: Mapping[str, str], address: str) -> None:
        """Check that a request may change the server.

        Raises:
            Unauthorized: it has no key of this server.
            Forbidden: its key is no admin key, or there are none, or a page of another
                site sent it.
            BadInput: its Content-Type is not JSON.
        """
        self.check(headers, address)
        if not self._admins.are_set():
            raise Forbidden(
                "nothing on this server can be changed over HTTP: set "
                "BASKET_ADMIN_KEYS to turn this on"
            )
        key = _key(headers)
        if not self._admins.have(key):
            if self._clients.have(key):
                raise Forbidden("this takes an admin key; given an API key")
            raise Unauthorized("this takes an admin key: Authorization: Bearer KEY")
        # Types that a page may send to another site without asking first are refused.
        # Triton's client sends no Content-Type at all.
        sent = headers.get("content-type") or JSON
        if sent.partition(";")[0].strip().lower() != JSON:
            raise BadInput(f"Content-Type: expected {JSON}, given {sent[:80]!r}")

    def _has_known_key(self, headers: Mapping[str, str]) -> bool:
        key = _key(headers)
        return self._clients.have(key) or self._admins.have(key)


def _key(headers: Mapping[str, str]) -> bytes:
    """Return the key of a request; b"", which is no key, if it has none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip().encode() if scheme.lower() == "bearer" else b""
