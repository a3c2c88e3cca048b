"""Refuses web pages of other sites, where the address of a server is its only lock.

A server on a loopback address without API keys is open to all programs of its machine.
A browser is one of them, and runs the pages of strangers. Such a page sends a foreign
Host if it had its own name resolved to the loopback address (DNS rebinding), and else
its Origin, or Sec-Fetch-Site.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping

from app.access.allowed_origins import AllowedOrigins
from app.errors import Forbidden

_SAME_SITE = ("", "none", "same-origin")
_SHOWN = 80
# name, name:port, [address] or [address]:port.
_AUTHORITY = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^\[\]:/@?#,\s]+))(?::[0-9]*)?"
)
_WHY = (
    "this server has no API keys and listens on a loopback address, so it answers only "
    "programs of this machine, and no web pages of other sites"
)
_HINT = (
    "To let pages of an origin ask, add it, such as https://shop.example.com, to "
    "BASKET_ALLOWED_ORIGINS; a name of this server, to BASKET_ALLOWED_HOSTS"
)


class CrossSiteCheck:
    """Checks requests that come in on a loopback address.

    Only requests of browsers have the headers that are checked, apart from Host.
    """

    def __init__(
        self, allowed_hosts: Iterable[str], origins: AllowedOrigins | None = None
    ) -> None:
        """Store the names that count as the server's own: in lower case, no port.

        Pages of `origins` may ask.
        """
        self._allowed = frozenset(allowed_hosts)
        self.origins = origins or AllowedOrigins(())
        self._is_on = True

    def listens_at(self, hosts: Iterable[str]) -> None:
        """Note all hosts of the server's listening sockets, if they are known.

        One that is open to other machines, such as 0.0.0.0, turns the check off: then
        connections to a loopback address come from proxies and probes too.
        """
        addresses = [_address(host) for host in hosts]
        is_open = any(each is not None and each.is_unspecified for each in addresses)
        has_loopback = any(each is not None and each.is_loopback for each in addresses)
        self._is_on = has_loopback and not is_open

    def check(
        self, headers: Mapping[str, str], address: str, *, is_page: bool = False
    ) -> None:
        """Check one request, which came in at an address of the server.

        A link on another site may lead to a page of this server (`is_page`).

        Raises:
            Forbidden: it has a foreign Host, or comes from a page of another site.
        """
        if not self._is_on or not _is_loopback(address):
            return
        host = headers.get("host", "").lower()
        name = _name(host)
        # Browsers always send a Host; old probes do not.
        if host and name not in self._allowed and not _is_loopback(name):
            raise Forbidden(
                f"Host: {host[:_SHOWN]!r} is no name of this server: {_WHY}. To allow "
                "the name, add it to BASKET_ALLOWED_HOSTS"
            )
        origin = headers.get("origin")
        if origin is not None:
            page = _origin_authority(origin)
            if self.origins.has(origin) or _name(page) in self._allowed:
                return
            # Only a proxy can send X-Forwarded-Host with the Origin of a page: the page
            # itself would have to ask first, by an OPTIONS that does not allow it.
            own = (host, headers.get("x-forwarded-host", "").lower())
            if not page or page not in own:
                raise Forbidden(f"Origin: {origin[:_SHOWN]!r}: {_WHY}. {_HINT}")
        site = headers.get("sec-fetch-site", "")
        # A browser opens the address in a window of its own. Scripts and frames of a
        # page send other values, which they can't change.
        is_link = (
            is_page
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        if site.lower() not in _SAME_SITE and not is_link:
            raise Forbidden(f"Sec-Fetch-Site: {site[:_SHOWN]!r}: {_WHY}. {_HINT}")


def _origin_authority(origin: str) -> str:
    """Return host and port of a page's origin, "" if it has none, such as "null"."""
    scheme, _, authority = origin.lower().partition("://")
    return authority if scheme in ("http", "https") else ""


def _name(authority: str) -> str:
    """Return a name or an address without its port, "" if it is malformed."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return ""
    return found["address"] or found["name"].removesuffix(".")


def _is_loopback(name: str) -> bool:
    """Return whether a name or an address always means this machine."""
    address = _address(name)
    if address is None:
        return name == "localhost" or name.endswith(".localhost")
    return address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address, None for a name or the path of a Unix socket."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
