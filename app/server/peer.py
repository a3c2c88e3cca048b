"""Addresses of a connection, and trust in proxies' headers."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence


class TrustedProxies:
    """Proxies whose headers are trusted: Gunicorn's `forwarded_allow_ips`.

    `secure_headers` are Gunicorn's `secure_scheme_headers`: names in lower case, and
    the value that means that the client used TLS.
    """

    def __init__(
        self, addresses: Sequence[str], secure_headers: Mapping[str, str]
    ) -> None:
        """Store addresses and networks; `*` means all.

        Raises:
            ValueError: one of them is not an address.
        """
        self._trusts_all = "*" in addresses
        self._networks = [
            ipaddress.ip_network(each) for each in addresses if each not in ("*", "")
        ]
        self.secure_headers = {
            name.lower().encode(): value.encode()
            for name, value in secure_headers.items()
        }

    def trusts(self, client: tuple[str, int] | None) -> bool:
        """Return whether a peer is trusted; one at a Unix socket always is."""
        if client is None or self._trusts_all:
            return True
        address = ipaddress.ip_address(client[0].partition("%")[0])
        return any(address in network for network in self._networks)


class Peer:
    """Addresses (host, port) of a connection; `client` is None for a Unix socket."""

    __slots__ = ("_scheme", "_secure_headers", "client", "server")

    def __init__(
        self, transport: asyncio.BaseTransport, proxies: TrustedProxies
    ) -> None:
        """Read the addresses of an open connection."""
        client = transport.get_extra_info("peername")
        server = transport.get_extra_info("sockname")
        is_tcp = isinstance(client, tuple)
        self.client: tuple[str, int] | None = client[:2] if is_tcp else None
        self.server: tuple[str, int | None] = server[:2] if is_tcp else (server, None)
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        is_trusted = proxies.trusts(self.client)
        self._secure_headers = proxies.secure_headers if is_trusted else {}

    def scheme(self, headers: list[tuple[bytes, bytes]]) -> str:
        """Return the client's scheme, by the headers of a trusted proxy."""
        secure = self._secure_headers
        for name, value in headers:
            if name in secure:
                return "https" if value == secure[name] else "http"
        return self._scheme
